# The load's lock is taken by another system call, from another stack, in each recording.
for operation in read readv; do
    mkdir $operation
    cd $operation
    start_known known_kernel --wait $WORK $operation $threads $calls
    klockstat -p $pid -n 100 -s 1 > klockstat 2> klockstat.log &
    theirs=$!
    attached $theirs
    klock record -p $pid --locks kernel -f -o t.parquet > record 2>&1 &
    ours=$!
    attached $ours
    echo >&3
    exec 3>&-
    wait $load
    sleep 1
    end_recorder $ours record
    end_recorder $theirs klockstat
    cd ..
done
