# Starts the recorders that are named, in this order, lets the program run, and ends them.
measure() {
    mkdir $1
    cd $1
    shift
    start_known known_sleeps $naps 10 6
    for recorder in "$@"; do
        case $recorder in
        offcputime) offcputime -p $pid > offcputime 2> offcputime.log & theirs=$!; attached $theirs ;;
        klock) klock record -p $pid --off-cpu -f -o t.parquet > record 2>&1 & ours=$!; attached $ours ;;
        plain) klock record -p $pid --off-cpu=holders --locks futex -f -o t.parquet > record 2>&1 & ours=$!; attached $ours ;;
        esac
    done
    echo >&3
    until grep -q done known; do sleep 0.1; done
    sleep 1
    end_recorder $ours record
    case $* in *offcputime*) end_recorder $theirs offcputime ;; esac
    exec 3>&-
    wait $load
    cd ..
}

for round in $(seq $rounds); do
    if [ $round = 2 ]; then measure $round klock offcputime; else measure $round offcputime klock; fi
    (cd $round; klock export t.parquet --format offwaketime > folded 2> export; echo $? > export.status)
done
measure plain plain
