# A recording in which the kernel skipped programs is made again.
begun=$(now)
klock check > check
dmesg | wc -l > lines
for attempt in $(seq $attempts); do
    klock record --locks kernel,futex --probes $way -f -o t.parquet -- sh -c "
        for operation in lseek fchmod getdents console futex; do known_kernel $WORK \$operation $threads $calls; done" > known 2> record
    echo $? > record.status
    echo $attempt > attempts
    grep -q "by $way" check || break
    test $(($(now) - begun)) -lt $enough || break
    klock info --json t.parquet | grep -q '"recursion_misses": [1-9]' || break
done
dmesg | wc -l >> lines
