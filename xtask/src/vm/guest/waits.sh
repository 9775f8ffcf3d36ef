# On a slow machine few tasks run in the seconds of a recording: it is made again if no lock of the kernel was waited for.
begun=$(now)
for attempt in $(seq $attempts); do
    start_load --timeout 200
    klock record -a $depth -d ${seconds}s -f -o t.parquet > record 2>&1 &
    ours=$!
    loaded $ours
    wait $ours
    echo $? > record.status
    end_load
    grep -qx 0 record.status || break
    klock report t.parquet --format csv > guest.csv 2> report
    echo $? > report.status
    awk -F, -v kinds=",($kinds)," '$4 > 0 && $0 ~ kinds { found = 1 } END { exit !found }' guest.csv && break
    test $(($(now) - begun)) -lt $enough || break
done
