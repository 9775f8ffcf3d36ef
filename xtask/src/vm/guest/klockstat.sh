# The load's lock is taken by another system call, from another stack, if klockstat left its stack out.
for operation in read readv; do
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
    echo $operation >> operations
    awk -v all=$((threads * calls)) '{ for (i = 3; i < NF; i++) if ($i + 0 >= all && $(i - 1) ~ /^m?s$/) found = 1 }
        END { exit !found }' klockstat && break
done
