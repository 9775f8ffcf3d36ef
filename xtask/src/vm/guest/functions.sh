# Functions of the scripts that run in a guest, or on the machine itself. $WORK is a tmpfs.

# Prints the seconds since the boot.
now() { cut -d . -f 1 /proc/uptime; }

# Waits until a recorder has attached everything, which takes seconds on a slow machine. klock then starts the thread that writes; the tools of
# libbpf sleep until Ctrl-C, in the system call nanosleep or clock_nanosleep. Background programs of a shell ignore Ctrl-C unless they install a
# handler, as klock and klockstat do.
attached() {
    while [ -d /proc/$1 ]; do
        case $(cat /proc/$1/comm) in
        klock) grep -qx klock-writer /proc/$1/task/*/comm && break ;;
        *) grep -q -e '^35 ' -e '^230 ' /proc/$1/syscall && break ;;
        esac
        sleep 0.5
    done
}

# Starts stress-ng with these options beside its usual ones, in a process group of its own: $load.
start_load() {
    setsid nice -n 10 stress-ng --quiet --temp-path $WORK --futex 1 --mmap 2 --mmap-bytes 4m --pipe 1 --switch 1 --dentry 2 --dentries 64 \
        "$@" > load.log 2>&1 &
    load=$!
    sleep 2
}

# Waits until klock ends, and lets the load run only while klock has anything attached, from the first probe to the last. What klock does before
# and afterwards is its own alone, and takes several times as long beside four busy processors that one or two emulate. The load is stopped at
# the end.
loaded() {
    is_running=unknown
    while [ -d /proc/$1 ]; do
        if ls -l /proc/$1/fd 2> /dev/null | grep -q -e bpf_link -e perf_event; then wanted=yes; else wanted=no; fi
        if [ $wanted != $is_running ]; then
            if [ $wanted = yes ]; then kill -CONT -$load; else kill -STOP -$load; fi
            is_running=$wanted
        fi
        sleep 1
    done
    kill -STOP -$load
}

# Ends the load.
end_load() {
    kill -INT $load
    kill -CONT -$load
    wait $load
    echo $? > load.status
}

# Starts a program that prints `ready PID` and waits for a line: $load, with the process ID $pid. Its output goes to the file known.
start_known() {
    rm -f go
    mkfifo go
    "$@" < go > known &
    load=$!
    exec 3> go
    until grep -q ready known; do sleep 0.1; done
    pid=$(sed -n 's/^ready //p' known)
}

# Ends a recorder by Ctrl-C, and writes its exit status.
end_recorder() {
    kill -INT $1
    wait $1
    echo $? > $2.status
}

# Tries a recording without something. The name of what is missing is also that of the files.
try() {
    name=$1
    shift
    "$@" > $name 2>&1
    echo $? > $name.status
    rm -f t.*parquet
}
