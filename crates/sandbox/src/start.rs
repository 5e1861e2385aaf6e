//! Starts sandboxes. Everything that is needed to find a sandbox later exists before its program runs.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use crate::cgroup::Cgroups;
use crate::error::{StartError, Step, StepError};
use crate::host::{Host, PRLIMIT, SETSID, blocking, set_mode};
use crate::layout::{self, PROGRAM};
use crate::process::{self, Identity};
use crate::record::{self, Processes, Record};
use crate::sandbox::{self, Sandbox};
use crate::spec::Spec;
use crate::{filter, program, uid};

/// The timeout of bubblewrap, on a machine that starts many sandboxes at once.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The script of the supervisor, the process between bubblewrap's reaper, which waits for the last process, and the
/// program. When the program ends, the supervisor ends all other processes, also without a server. It runs the program
/// only after a line on its input: if the starter ends before, the start ends here.
const SUPERVISOR: &str = r#"read -r go && "$0" "$@" </dev/null; status=$?; kill -KILL -1 2>/dev/null; exit $status"#;
/// The line on which the supervisor runs the program.
const GO: &[u8] = b"go\n";

const SHELL: &str = "/bin/sh";

const REMEDY: &str = "check that this host allows unprivileged user namespaces, nested ones too \
    (kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0)";

/// The parts of a sandbox that exist before bubblewrap runs.
struct Prepared {
    dir: PathBuf,
    record: Record,
    sockets: Vec<OwnedFd>,
    log: fs::File,
}

impl Host {
    /// Starts the sandbox, and leaves nothing if that fails.
    pub(crate) async fn start_whole(&self, spec: Spec) -> Result<Sandbox, StartError> {
        let id = spec.id.clone();
        if !self.starting().insert(id.clone()) {
            return Err(StartError::Exists(id));
        }
        let started = self.start_announced(spec).await;
        // An existing sandbox must not be ended.
        if !matches!(started, Ok(_) | Err(StartError::Exists(_))) {
            let (host, id) = (self.clone(), id.clone());
            blocking(move || {
                if let Err(error) = host.end_now(&id) {
                    tracing::warn!(id, %error, "cannot clean up a sandbox that did not start");
                }
            })
            .await;
        }
        self.starting().remove(&id);
        started
    }

    async fn start_announced(&self, spec: Spec) -> Result<Sandbox, StartError> {
        let host = self.clone();
        let (spec, prepared) = blocking(move || {
            let prepared = host.prepare(&spec);
            (spec, prepared)
        })
        .await;
        self.launch(spec, prepared?).await
    }

    /// Checks that the sandbox fits. Creates the directory, the claim of a host user, the record, the control groups, the sockets and the program's
    /// copy. Blocks.
    fn prepare(&self, spec: &Spec) -> Result<Prepared, StartError> {
        self.own_groups().check_room(spec.all_memory_bytes(), spec.max_processes)?;
        let dir = self.dir(&spec.id);
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(StartError::Exists(spec.id.clone()));
            }
            made => made.step("make", &dir)?,
        }
        let config = self.config();
        let host_uid = match self.as_root() {
            true => Some(uid::claim(config.uid_base, config.uid_count, &dir)?),
            false => None,
        };
        let record = Record {
            id: spec.id.clone(),
            nonce: record::random_hex().step("read", "/dev/urandom")?,
            boot: record::boot_id().step("read the boot for", &dir)?,
            host_uid,
            started_ms: record::now_ms(),
            sockets: spec.sockets,
            memory: self.memory_limit(),
            cgroups: self.controllers().plan(&format!("{}{}", self.group_prefix(), spec.id)),
            processes: None,
        };
        record.write(&dir)?;
        record.cgroups.make(record.memory, spec.all_memory_bytes(), spec.max_processes)?;
        if host_uid.is_some() {
            // The sandbox's user must reach the program. Other users can read nothing else in the directory.
            set_mode(&dir, 0o711)?;
        }
        let sockets = listen(&dir, spec.sockets)?;
        hand_over(&spec.egress_dir, host_uid)?;
        program::place(&config.root, &spec.program, &dir.join("program"))?;
        Ok(Prepared { dir, record, sockets, log: log_file()? })
    }

    async fn launch(&self, spec: Spec, prepared: Prepared) -> Result<Sandbox, StartError> {
        let Prepared { dir, mut record, sockets, log } = prepared;
        let (info, info_end) = info_pipe().step("make a pipe for", &dir)?;
        let (inside_gate, gate) = pipe_pair().step("make the gate of", &dir)?;
        let (inside_go, go) = pipe_pair().step("make a pipe for", &dir)?;
        let mut child = self.spawn(spec, &dir, record.host_uid, sockets, &log, [info_end, inside_gate, inside_go])?;
        let monitor = child.id().map(|pid| pid as i32);
        let reported = tokio::time::timeout(TIMEOUT, read_info(info)).await;
        let init = reported.map_err(|_| StartError::TimedOut(TIMEOUT.as_secs()))?.step("read the pid of", &dir)?;
        let waiting = monitor.zip(init).map(|(monitor, init)| Waiting::of(monitor, init)).transpose();
        let Some(waiting) = waiting.step("look at the processes of", &dir)?.flatten() else {
            // bubblewrap has ended or will end soon; its output is complete then.
            tokio::time::timeout(TIMEOUT, child.wait()).await.ok();
            return Err(refused(&log));
        };
        let started = blocking(move || {
            record.processes = Some(waiting.processes);
            record.write(&dir)?;
            waiting.join(&record.cgroups, &log)?;
            open(&gate, &waiting.init, &log)?;
            // An ended supervisor is detected below.
            let _gone = rustix::io::write(&go, GO);
            let gone = || StartError::TimedOut(TIMEOUT.as_secs());
            let found = Sandbox::of(record, dir.clone(), Some(log)).step("look at the processes of", dir)?;
            found.ok_or_else(gone)
        });
        let started = started.await;
        // Not reaped earlier, so that the pid of bubblewrap was not reused.
        reap(child);
        started
    }

    /// Runs bubblewrap. Afterwards the only descriptors of the sandbox in this process are its ends of the pipes and
    /// the log.
    fn spawn(
        &self,
        mut spec: Spec,
        dir: &Path,
        host_uid: Option<u32>,
        sockets: Vec<OwnedFd>,
        log: &fs::File,
        [info, gate, go]: [OwnedFd; 3],
    ) -> Result<Child, StartError> {
        let mut passed = Passed(sockets);
        passed.0.append(&mut spec.listeners);
        let (info, gate) = (passed.add(info), passed.add(gate));
        let machine_id = format!("{}\n", record::random_hex().step("read", "/dev/urandom")?);
        let mut files = layout::own_files(&machine_id);
        files.retain(|(path, _)| spec.files.iter().all(|file| file.inside != *path));
        files.extend(spec.files.iter().map(|file| (file.inside.as_path(), file.content.clone())));
        let mut data = Vec::with_capacity(files.len());
        for (path, content) in files {
            data.push((path, passed.add(memory_file(&content).step("prepare", path)?)));
        }
        let filter = filter::filter().and_then(memory_file).step("prepare the filter of", dir)?;
        let filter = passed.add(filter);
        let arguments = layout::arguments(&spec, data.into_iter()).terminated();
        let arguments = passed.add(memory_file(&arguments).step("prepare the arguments of", dir)?);

        let program = dir.join("program");
        let mut command = self.starter(host_uid);
        command.args(spec.network.iter().flat_map(|network| network.words(&program))).arg(&self.config().bwrap);
        command.args(["--args", &arguments.to_string()]);
        // On the visible command line: a sweep recognizes the remains of an unrecorded start by this argument.
        command.arg("--ro-bind").arg(program).arg(PROGRAM);
        let shell = shell();
        if shell == layout::SUPERVISOR {
            command.args(["--ro-bind", SHELL, layout::SUPERVISOR]);
        }
        command.args(layout::SEALED);
        command.args(["--seccomp", &filter.to_string()]);
        command.args(["--info-fd", &info.to_string(), "--block-fd", &gate.to_string(), "--"]);
        command.args([shell, "-c", SUPERVISOR]);
        command.args(limits(spec.max_processes, spec.max_open_files)).arg(PROGRAM).args(&spec.args);
        let output = || log.try_clone().step("open the log of", dir);
        command.stdin(Stdio::from(go)).stdout(output()?).stderr(output()?).env_clear().current_dir("/");
        let mut mappings = passed.mappings();
        mappings.extend(inherited(mappings.len()).step("cover the descriptors inherited by", dir)?);
        command.fd_mappings(mappings).map_err(std::io::Error::other).step("number the descriptors of", dir)?;
        Ok(command.spawn().step("run", SETSID)?)
    }

    /// Returns the command that starts a program in a separate session and, as root, as the given user without any
    /// right. The program and its arguments have to be added as arguments.
    pub(crate) fn starter(&self, host_uid: Option<u32>) -> Command {
        let config = self.config();
        let mut command = Command::new(SETSID);
        if let Some(user) = host_uid {
            command.arg(&config.setpriv);
            command.args(["--reuid", &user.to_string(), "--regid", &user.to_string(), "--clear-groups"]);
            command.args(["--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--"]);
        }
        command
    }
}

/// The processes of a sandbox whose bubblewrap waits for the gate, with handles on them.
struct Waiting {
    processes: Processes,
    monitor: OwnedFd,
    init: OwnedFd,
}

impl Waiting {
    /// Returns the sandbox of a child of this process that is not reaped, and of the process that the child reports.
    /// Returns `None` if one of them has ended: a pid that does not belong to a child of bubblewrap was reused.
    fn of(monitor: i32, init: i32) -> std::io::Result<Option<Self>> {
        let Some((monitor, monitor_handle)) = held(monitor)? else { return Ok(None) };
        let Some((init, init_handle)) = held(init)? else { return Ok(None) };
        let is_its_child = process::Stat::read(init.pid)?.is_some_and(|stat| stat.parent == monitor.pid);
        let found = Self { processes: Processes { monitor, init }, monitor: monitor_handle, init: init_handle };
        // Checked last: if the processes run now, their pids were not reused meanwhile.
        Ok((is_its_child && found.lives()).then_some(found))
    }

    fn lives(&self) -> bool {
        ![&self.monitor, &self.init].into_iter().any(process::ended)
    }

    /// Moves both processes into the groups. The groups accept only pids, so a reused pid would add an unrelated
    /// process. No pid is reused here: this process has not reaped bubblewrap, and a stopped bubblewrap cannot reap the
    /// other one.
    fn join(&self, groups: &Cgroups, log: &fs::File) -> Result<(), StartError> {
        process::stop(&self.monitor).step("stop", "bubblewrap")?;
        let Processes { monitor, init } = self.processes;
        let joined = self.lives().then(|| [monitor, init].iter().try_for_each(|process| groups.join(process.pid)));
        process::go_on(&self.monitor).step("let go on", "bubblewrap")?;
        // A process that has ended cannot be moved; the error is then the output of bubblewrap.
        if !self.lives() {
            return Err(refused(log));
        }
        Ok(joined.unwrap_or(Ok(()))?)
    }
}

/// Returns the process with this pid, and a handle on it.
fn held(pid: i32) -> std::io::Result<Option<(Identity, OwnedFd)>> {
    let Some(process) = Identity::of(pid)? else { return Ok(None) };
    Ok(process.open()?.map(|handle| (process, handle)))
}

/// Returns the path of the supervisor's shell. It has a distinct name, so that a user who kills all shells of a session
/// by name does not end the session. A shell whose behaviour depends on its name keeps its usual name.
fn shell() -> &'static str {
    let name = fs::canonicalize(SHELL).ok().and_then(|path| path.file_name().map(std::ffi::OsStr::to_owned));
    if name.is_none_or(|name| name == "busybox") { SHELL } else { layout::SUPERVISOR }
}

/// The descriptors of the program and of bubblewrap, in the order of their numbers from 3 on.
struct Passed(Vec<OwnedFd>);

impl Passed {
    /// Adds a descriptor and returns its number in the child.
    fn add(&mut self, descriptor: OwnedFd) -> i32 {
        self.0.push(descriptor);
        self.0.len() as i32 + 2
    }

    fn mappings(self) -> Vec<FdMapping> {
        self.0.into_iter().zip(3..).map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd }).collect()
    }
}

/// Returns mappings that replace inherited descriptors in the child by `/dev/null`, because the starter of this process
/// may have left some open. `mapped` is the count of the numbers from 3 on that are assigned already.
fn inherited(mapped: usize) -> std::io::Result<Vec<FdMapping>> {
    let nothing = fs::File::open("/dev/null")?;
    let mut covers = Vec::new();
    for entry in fs::read_dir("/proc/self/fdinfo")?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let about = fs::read_to_string(entry.path()).unwrap_or_default();
        let flags = about.lines().find_map(|line| i64::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        let is_handed_on = flags.is_some_and(|flags| flags & i64::from(OFlags::CLOEXEC.bits()) == 0);
        if is_handed_on && number >= mapped as i32 + 3 {
            covers.push(FdMapping { parent_fd: nothing.try_clone()?.into(), child_fd: number });
        }
    }
    Ok(covers)
}

/// Creates the listening sockets, in a directory that only this user can enter.
fn listen(dir: &Path, count: usize) -> Result<Vec<OwnedFd>, StepError> {
    let sockets = sandbox::sockets_dir(dir);
    fs::DirBuilder::new().mode(0o700).create(&sockets).step("make", &sockets)?;
    let opened = sandbox::open_dir(&sockets).step("open", &sockets)?;
    let bind = |n| UnixListener::bind(sandbox::short_path(&opened, n)).map(OwnedFd::from).step("listen in", &sockets);
    (0..count).map(bind).collect()
}

/// Creates the egress directory, and makes it accessible to the sandbox's user and to no other user.
fn hand_over(dir: &Path, host_uid: Option<u32>) -> Result<(), StepError> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error).step("make", dir),
        _ => {}
    }
    let Some(user) = host_uid else { return Ok(()) };
    std::os::unix::fs::chown(dir, None, Some(user)).step("hand over", dir)?;
    set_mode(dir, 0o710)
}

/// Creates the file for the program's output: memory of a fixed size. Writes to it cannot fill a disk or block, and
/// they do not fail with a broken pipe after the server has ended.
fn log_file() -> Result<fs::File, StepError> {
    let make = || {
        let file = rustix::fs::memfd_create("log", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, sandbox::LOG_BYTES)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok::<_, rustix::io::Errno>(file.into())
    };
    make().step("make", "the log")
}

/// Creates a file in memory with `content`, positioned at its beginning.
fn memory_file(content: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = fs::File::from(rustix::fs::memfd_create("data", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    std::io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// Creates a pipe and returns its read and its write end. Readers see the end of the stream when this process ends.
fn pipe_pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// Creates the pipe on which bubblewrap reports its child's pid. Returns this process's end and bubblewrap's end. The
/// latter is open in both directions, so that writes succeed after this process has ended: a broken pipe would end
/// bubblewrap at that write, and its child would wait forever. With this pipe, bubblewrap ends by itself a step later.
fn info_pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (ours, end) = pipe_pair()?;
    Ok((ours, both_ends(&end)?))
}

fn both_ends(end: &OwnedFd) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", end.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Reads the pid of the sandbox's first process; `None` if bubblewrap ended without reporting it.
async fn read_info(info: OwnedFd) -> std::io::Result<Option<i32>> {
    #[derive(serde::Deserialize)]
    struct Info {
        #[serde(rename = "child-pid")]
        child_pid: i32,
    }
    let mut text = Vec::new();
    pipe::Receiver::from_owned_fd(info)?.take(4096).read_to_end(&mut text).await?;
    Ok(serde_json::from_slice::<Info>(&text).ok().map(|info| info.child_pid))
}

/// Returns the command that sets the limits, which every process inside inherits. It runs inside, where processes are
/// counted in the sandbox's user namespace, so that sandboxes with the same host user do not affect each other. The
/// limits cannot be set from outside by root without `CAP_SYS_RESOURCE`.
fn limits(max_processes: u32, max_open_files: u32) -> [String; 5] {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    // A limit cannot exceed the limit of the starter.
    let files = u64::from(max_open_files).min(hard);
    [PRLIMIT.into(), format!("--nproc={max_processes}"), format!("--nofile={files}"), "--core=0".into(), "--".into()]
}

/// Opens the gate, and returns when bubblewrap has read the byte: everything inside is set up then.
fn open(gate: &OwnedFd, init: &OwnedFd, log: &fs::File) -> Result<(), StartError> {
    match rustix::io::write(gate, b".") {
        Err(rustix::io::Errno::PIPE) => return Err(refused(log)),
        written => written.step("open the gate of", PROGRAM)?,
    };
    let deadline = Instant::now() + TIMEOUT;
    let is_taken =
        || rustix::io::ioctl_fionread(gate.as_fd()).step("watch the gate of", PROGRAM).map(|bytes| bytes == 0);
    while !is_taken()? {
        // A program that has already ended has passed the gate.
        if process::wait_end(init, Duration::from_micros(250)) && !is_taken()? {
            return Err(refused(log));
        }
        if Instant::now() >= deadline {
            return Err(StartError::TimedOut(TIMEOUT.as_secs()));
        }
    }
    Ok(())
}

fn refused(log: &fs::File) -> StartError {
    let output = sandbox::read_log(log).trim().to_owned();
    let output = if output.is_empty() { "bubblewrap ended without a word".to_owned() } else { output };
    StartError::Refused { output, remedy: REMEDY }
}

/// Reaps bubblewrap, so that it does not remain as a zombie while this server runs.
fn reap(mut child: Child) {
    tokio::spawn(async move {
        if let Err(error) = child.wait().await {
            tracing::debug!(%error, "a sandbox could not be waited for");
        }
    });
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    /// A program that has started another one, like bubblewrap.
    struct Family(std::process::Child, i32);

    impl Family {
        fn start() -> Self {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "sleep 600 & echo $!; wait; read line"]);
            let mut parent = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
            let mut line = String::new();
            BufReader::new(parent.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
            Self(parent, line.trim().parse().expect("a number"))
        }

        fn waiting(&self) -> Option<Waiting> {
            Waiting::of(self.0.id() as i32, self.1).expect("a look")
        }
    }

    impl Drop for Family {
        fn drop(&mut self) {
            if let Some((_, handle)) = held(self.1).ok().flatten() {
                process::kill(&handle).ok();
            }
            self.0.kill().and_then(|()| self.0.wait()).ok();
        }
    }

    fn groups(at: &Path) -> Cgroups {
        serde_json::from_value(serde_json::json!({ "memory": at, "pids": null })).expect("groups")
    }

    #[tokio::test]
    async fn bubblewrap_reports_its_pid_even_without_a_reader() {
        let (ours, end) = info_pipe().expect("a pipe");
        rustix::io::write(&end, br#"{"child-pid": 7}"#).expect("writable");
        drop(end);
        assert_eq!(read_info(ours).await.expect("it ends"), Some(7));
        let (ours, end) = info_pipe().expect("a pipe");
        drop(ours);
        rustix::io::write(&end, b"{").expect("writable");
    }

    #[test]
    fn who_is_no_child_of_bubblewrap_is_not_taken_for_the_first_process_inside() {
        let (family, stranger) = (Family::start(), Family::start());
        assert!(family.waiting().is_some());
        assert!(Waiting::of(family.0.id() as i32, stranger.0.id() as i32).expect("a look").is_none());
        assert!(Waiting::of(family.0.id() as i32, stranger.1).expect("a look").is_none());
    }

    #[test]
    fn both_are_put_in_the_groups_and_go_on() {
        let (family, group) = (Family::start(), tempfile::tempdir().expect("a directory"));
        let waiting = family.waiting().expect("both live");
        waiting.join(&groups(group.path()), &log_file().expect("a log")).expect("they are in");
        let joined = fs::read_to_string(group.path().join("cgroup.procs")).expect("a number");
        assert_eq!(joined, family.1.to_string());
        process::kill(&waiting.init).expect("it is killed");
        assert!(process::wait_end(&waiting.init, TIMEOUT));
        let deadline = Instant::now() + TIMEOUT;
        while Identity::of(family.1).expect("a look").is_some() {
            assert!(Instant::now() < deadline, "its parent has not taken note of its end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_number_of_one_that_has_ended_is_put_in_no_group() {
        let (family, group) = (Family::start(), tempfile::tempdir().expect("a directory"));
        let waiting = family.waiting().expect("both live");
        process::kill(&waiting.init).expect("it is killed");
        assert!(process::wait_end(&waiting.init, TIMEOUT));
        let joined = waiting.join(&groups(group.path()), &log_file().expect("a log"));
        assert!(matches!(joined, Err(StartError::Refused { .. })));
        assert!(!group.path().join("cgroup.procs").exists());
    }
}
