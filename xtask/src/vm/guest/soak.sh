start_load --clone 1 --fault 1 --timeout ${limit}s
end=$(($(now) + seconds))
slice=0
while [ $(now) -lt $end ] || [ $slice -lt $least ]; do
    case $((slice % 3)) in
    0) how='--locks kernel,futex' ;;
    1) how='--locks kernel --probes kprobe' ;;
    2) how=$waits ;;
    esac
    klock record -a $how -d ${length}s -f -o $WORK/t.parquet > record.$slice 2>&1 &
    ours=$!
    loaded $ours
    wait $ours
    echo $? >> statuses
    klock info --json $WORK/t.parquet > info.$slice
    rm -f $WORK/t.*parquet
    slice=$((slice + 1))
done
end_load
now > ended
