//! Tests of the limits of a sandbox, and that a sandbox takes no resources from another one.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use casement_sandbox::{MemoryLimit, Sandbox};

use crate::support::{MIB, Place, groups, until, within};

#[tokio::test]
async fn a_fork_bomb_is_capped_and_does_not_hinder_a_second_sandbox() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut spec = place.script("bomb", "perl -e 'fork while 1'");
    spec.max_processes = 60;
    let bomb = place.host.start(spec).await?;
    let mut most = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while most < 50 && Instant::now() < deadline {
        most = most.max(bomb.pids().await.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut second = place.script("second", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01 & done; wait; echo fine");
    second.max_processes = 60;
    assert_eq!(place.output_of(second).await?, "fine\n");
    let count = bomb.pids().await.len();
    // The limit does not include bubblewrap's process outside.
    assert!((50..=61).contains(&most) && count <= 61, "{most} {count}");
    within(Duration::from_secs(60), place.host.end("bomb")).await??;
    Ok(())
}

/// Each spinner has a separate kernel session, which without control groups has the same weight as any other session.
#[tokio::test]
async fn a_sandbox_that_starts_many_programs_takes_no_processor_time_from_another() -> anyhow::Result<()> {
    let place = Place::new()?;
    let processors = std::thread::available_parallelism()?.get();
    let spinners = |id: &str, count: usize| {
        let spin = "setsid sh -c 'while :; do :; done' &";
        let mut spec = place.script(id, &format!("for i in $(seq {count}); do {spin} done; echo up; exec sleep 1000"));
        spec.max_processes = 4_000;
        spec
    };
    // The few are more than the processors, so that no processor is without one of them.
    let (many, few) = (spinners("many", 32 * processors), spinners("few", 2 * processors));
    let (many, few) = (place.host.start(many).await?, place.host.start(few).await?);
    let up = |sandbox: &Sandbox| sandbox.log().is_some_and(|log| log.contains("up"));
    until("all of them run", || up(&many) && up(&few)).await?;
    if !groups(&few)?.iter().any(|group| group.join("cpu.shares").exists() || group.join("cpu.weight").exists()) {
        let check = place.host.checks().await.into_iter().find(|check| check.name == "processors");
        assert!(check.is_some_and(|check| check.remedy.is_some()));
        return Ok(());
    }
    let (of_many, of_few) = (many.pids().await, few.pids().await);
    let before = [processor_ticks(&of_many), processor_ticks(&of_few)];
    // Without weights the few get a sixteenth of what the many get, however long they run. With weights, two seconds can be
    // too short for the scheduler to balance them.
    let mut used = [0, 0];
    until("they had their processor time", || {
        used = [processor_ticks(&of_many) - before[0], processor_ticks(&of_few) - before[1]];
        let seconds_of_each = used.iter().sum::<u64>() / (100 * processors as u64);
        seconds_of_each >= 8 || (seconds_of_each >= 2 && used[1] * 4 > used[0])
    })
    .await?;
    let [of_many, of_few] = used;
    assert!(of_few * 4 > of_many, "{of_few} against {of_many}");
    Ok(())
}

/// Returns the processor time that the processes have used, in hundredths of a second.
fn processor_ticks(pids: &[i32]) -> u64 {
    let texts = pids.iter().filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    texts
        .map(|text| {
            text.rsplit(')')
                .next()
                .unwrap_or_default()
                .split(' ')
                .skip(12)
                .take(2)
                .flat_map(str::parse::<u64>)
                .sum::<u64>()
        })
        .sum()
}

#[tokio::test]
async fn too_much_memory_ends_a_process_of_that_sandbox_alone() -> anyhow::Result<()> {
    let place = Place::new()?;
    let other = place.host.start(place.script("other", "exec sleep 1000")).await?;
    let mut spec = place.script("greedy", "perl -e '$x = q(x) x 300_000_000'; echo $?; exec sleep 1000");
    spec.memory_bytes = 64 * MIB;
    let greedy = place.host.start(spec).await?;
    until("the allocation has ended", || greedy.log().is_some_and(|log| log.lines().any(|l| l.parse::<i32>().is_ok())))
        .await?;
    let limited = greedy.memory != MemoryLimit::None;
    let status = greedy.log().unwrap_or_default().lines().last().map(str::to_owned);
    assert_eq!(status.as_deref(), Some(if limited { "137" } else { "0" }));
    assert_eq!((greedy.oom_killed(), other.oom_killed(), other.is_alive()), (limited, false, true));
    Ok(())
}

/// If server and sandbox share a user, the files of the group belong to that user too.
#[tokio::test]
async fn a_sandbox_can_neither_raise_its_limit_nor_leave_a_group_behind() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mount = "unshare --user --map-root-user --mount --cgroup sh -c 'mkdir /tmp/c && mount -t cgroup2 none /tmp/c";
    let lift = "cd /tmp/c; for f in memory.max memory.swap.max pids.max; do echo max >$f; done; mkdir -p a/b; echo 0 >a/b/cgroup.procs";
    let eat = r#"perl -e "\$x = q(x) x 300_000_000"; echo got $?"#;
    let mut spec = place.script("a", &format!("exec 2>/dev/null; {mount}; {lift}; {eat}'; exec sleep 1000"));
    spec.memory_bytes = 64 * MIB;
    let sandbox = place.host.start(spec).await?;
    until("the allocation has ended", || sandbox.log().is_some_and(|log| log.contains("got "))).await?;
    let limited = sandbox.memory != MemoryLimit::None;
    assert_eq!(sandbox.log().as_deref(), Some(if limited { "got 137\n" } else { "got 0\n" }));
    let groups = groups(&sandbox)?;
    assert_eq!(groups.is_empty(), !limited);
    within(Duration::from_secs(60), place.host.end("a")).await??;
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
    Ok(())
}

#[tokio::test]
async fn temporary_files_are_limited() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut spec = place.script(
        "a",
        "for d in /tmp /dev/shm $HOME; do head -c 3M /dev/zero > $d/x 2>/dev/null || echo $(stat -c %s $d/x); done",
    );
    spec.tmpfs_bytes = 2 * MIB;
    assert_eq!(place.output_of(spec).await?, "2097152\n".repeat(3));
    Ok(())
}

#[tokio::test]
async fn open_files_are_limited_and_no_core_is_written() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut spec = place.script("a", "ulimit -n; ulimit -Hn; ulimit -Hc");
    spec.max_open_files = 77;
    assert_eq!(place.output_of(spec).await?, "77\n77\n0\n");
    Ok(())
}

#[tokio::test]
async fn program_output_takes_bounded_space_and_never_blocks() -> anyhow::Result<()> {
    let place = Place::new()?;
    let sandbox = place.host.start(place.script("a", "head -c 10M /dev/zero | tr '\\0' x; exec sleep 0.01")).await?;
    within(Duration::from_secs(60), sandbox.exited()).await??;
    assert_eq!(sandbox.log().map(|log| log.starts_with("xxx") && log.len() <= 65536), Some(true));
    Ok(())
}

#[tokio::test]
async fn memory_is_that_of_the_whole_group() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = "perl -e '$x = q(x) x 40_000_000; print 1; $| = 1; print 2; sleep 1000' & exec sleep 1000";
    let sandbox = place.host.start(place.script("a", script)).await?;
    until("memory is in use", || sandbox.log().is_some_and(|log| log.contains("12"))).await?;
    let used = sandbox.memory_pss().await;
    assert!((40_000_000..160_000_000).contains(&used), "{used}");
    Ok(())
}

/// A program that fills a System V segment and detaches it.
const SEGMENT: &str = "import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
shm = libc.shmget(0, 250 << 20, 0o1600)
at = libc.shmat(shm, None, 0)
ctypes.memset(at, 1, 250 << 20)
libc.shmdt(at)";

/// Ways to use 250 MiB that no process has mapped.
const HIDDEN: [(&str, &str, &str); 7] = [
    ("memfd", "", "import os\nfd = os.memfd_create('x')\nfor _ in range(250): os.write(fd, bytes(1 << 20))"),
    ("segment", "", SEGMENT),
    ("namespace", "unshare --user --map-root-user --ipc", SEGMENT),
    (
        "tmpfs",
        "unshare --user --map-root-user --mount",
        "import os\nos.system('mount -t tmpfs x /tmp')\nopen('/tmp/x', 'wb').write(bytes(250 << 20))",
    ),
    ("ramfs", "unshare --user --map-root-user --mount", "import os\nos.system('mount -t ramfs x /tmp')"),
    ("unbounded", "unshare --user --map-root-user --mount", "import os\nos.system('mount -t tmpfs -o size=0 x /tmp')"),
    (
        "hidden",
        "unshare --user --map-root-user --mount",
        "import os\nfor _ in range(2): os.system('mount -t tmpfs x /tmp')",
    ),
];

#[tokio::test]
async fn unmapped_memory_is_counted_from_outside_even_while_the_program_is_stopped() -> anyhow::Result<()> {
    const LIMIT: u64 = 150 << 20;
    let place = Place::new()?;
    // The server of an ordinary user cannot read the IPC namespaces of its sandboxes, so it does not count segments.
    let sees_segments = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self")?) == 0;
    for (id, wrapper, hides) in HIDDEN.into_iter().filter(|(_, _, hides)| sees_segments || *hides != SEGMENT) {
        // The program stops itself once it has its memory, so that no process inside watches it.
        let program = format!("{hides}\nimport os, signal\nos.kill(os.getpid(), signal.SIGSTOP)");
        let script = format!("printf '%s' \"$CODE\" > /home/casement/a.py; exec {wrapper} python3 /home/casement/a.py");
        let mut spec = place.script(id, &script);
        spec.env = vec![("CODE".to_owned(), program)];
        let sandbox = place.host.start(spec).await?;
        let over = within(Duration::from_secs(60), sandbox.over_memory(LIMIT)).await;
        over.with_context(|| format!("{id}: {:?}", sandbox.log()))?;
        place.host.end(id).await?;
    }
    let quiet = place.host.start(place.script("quiet", "exec sleep 1000")).await?;
    let over = tokio::time::timeout(Duration::from_secs(3), quiet.over_memory(LIMIT)).await;
    assert!(over.is_err(), "a program at rest holds little");
    Ok(())
}
