//! Programs that a caller runs in the session.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::process::{
    EXEC, Exec, Executed, KILL, Kill, OUTPUT, Output, OutputStream, ProcessName, ProcessStatus, Program, RESIZE,
    Resize, SPAWN, STATUS, STDIN, Signal, Spawn, Spawned, Stdin, TerminalSize, Written,
};
use casement_agent_protocol::{AgentConfig, ErrorCode};
use futures_util::StreamExt as _;

use crate::headless::refusal;
use crate::sandbox::{SILENT, Sandbox, config, gone};

/// The timeout, on a busy machine, of an operation that normally completes at once.
const SHORT_TIMEOUT: Duration = Duration::from_secs(60);

/// A configuration without a browser, which programs do not need.
pub(crate) fn without_browser() -> AgentConfig {
    let mut config = config(true);
    config.chromium = SILENT.into();
    config
}

pub(crate) fn shell(line: &str) -> Program {
    Program { command: line.to_owned(), ..Program::default() }
}

/// A sandbox without a browser, and a client.
async fn bare() -> (Sandbox, AgentClient) {
    let sandbox = Sandbox::start(&without_browser());
    let client = sandbox.client().await;
    (sandbox, client)
}

pub(crate) struct Ran {
    pub(crate) reported: Executed,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

pub(crate) async fn run(client: &AgentClient, program: Program, timeout_ms: u64) -> Result<Ran, ClientError> {
    // The response begins when the program has ended.
    let within = Duration::from_millis(timeout_ms) + SHORT_TIMEOUT;
    let bytes = client.download(EXEC, &Exec { program, timeout_ms }, within).await?.collect(usize::MAX).await?;
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let reported: Executed = serde_json::from_slice(&bytes[..end]).unwrap();
    let (stdout, stderr) = bytes[end + 1..].split_at(usize::try_from(reported.stdout_bytes).unwrap());
    assert_eq!(stderr.len() as u64, reported.stderr_bytes);
    Ok(Ran { reported, stdout: stdout.to_vec(), stderr: stderr.to_vec() })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_sandbox_gives_way_to_the_programs_beside_it() {
    let (_sandbox, client) = bare().await;
    // The kernel may weigh processes by autogroups, whose priority is set some time after the start.
    let look = "cut -d' ' -f19 /proc/self/stat
        group=/proc/$PPID/autogroup
        for try in $(seq 600); do { [ ! -e $group ] || grep -q 'nice 5$' $group; } && exit; sleep 0.1; done
        cat $group";
    let looked = run(&client, shell(look), 90_000).await.unwrap();
    let outside = rustix::process::getpriority_process(None).unwrap();
    assert_eq!(text(&looked.stdout), format!("{}\n", (outside + 5).min(19)));
}

#[tokio::test]
async fn a_program_gets_its_arguments_directory_and_environment_and_nothing_of_the_agent() {
    let (_sandbox, client) = bare().await;

    let program = Program {
        command: "printf".to_owned(),
        args: Some(vec!["%s|".to_owned(), "a b".to_owned(), "$HOME;*".to_owned()]),
        ..Program::default()
    };
    let ran = run(&client, program, 60_000).await.unwrap();
    assert_eq!((ran.reported.exit_code, text(&ran.stdout)), (0, "a b|$HOME;*|".to_owned()));

    let program = Program {
        cwd: Some("/tmp".to_owned()),
        env: [("A_WORD".to_owned(), "ä\n".to_owned())].into(),
        ..shell("pwd; printf \"$A_WORD\"; echo \"$HOME\"; echo bad >&2; exit 7")
    };
    let ran = run(&client, program, 60_000).await.unwrap();
    assert_eq!(ran.reported.exit_code, 7);
    assert_eq!((text(&ran.stdout), text(&ran.stderr)), ("/tmp\nä\n/home/casement\n".to_owned(), "bad\n".to_owned()));

    let line = "pwd; ls -l /proc/self/fd | grep -cE 'socket|anon_inode|memfd'; env | grep -c '^LISTEN'; set -- $(cat /proc/$$/stat); echo $1 $5 $6 $$";
    let ran = run(&client, shell(line), 60_000).await.unwrap();
    let stdout = text(&ran.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..3], ["/home/casement", "0", "0"], "{lines:?}");
    let numbers: Vec<&str> = lines[3].split(' ').collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "process, group and session: {numbers:?}");
}

#[tokio::test]
async fn a_program_that_is_not_there_or_is_killed_gives_the_code_a_shell_would() {
    let (_sandbox, client) = bare().await;
    let directly = |command: &str| Program { args: Some(vec![]), ..shell(command) };
    for (program, code) in [
        (shell("no-such-program"), 127),
        (directly("no-such-program"), 127),
        (directly("/no/such/program"), 127),
        (directly("/etc/passwd"), 126),
        (shell("kill -TERM $$"), 143),
        (shell("kill -KILL $$"), 137),
    ] {
        let ran = run(&client, program.clone(), 60_000).await.unwrap();
        assert_eq!(ran.reported.exit_code, code, "{program:?}");
    }
    for cwd in ["/no/such/directory", "/etc/passwd", "/proc/1/root/root"] {
        let program = Program { cwd: Some(cwd.to_owned()), ..shell("true") };
        assert_eq!(refusal(run(&client, program, 60_000).await.map(drop)), ErrorCode::NotADirectory, "{cwd}");
    }
}

#[tokio::test]
async fn output_is_buffered_up_to_its_limit_and_never_stops_the_program() {
    let (_sandbox, client) = bare().await;
    let ran = run(&client, shell("head -c 30000000 /dev/zero; echo done >&2"), 60_000).await.unwrap();
    assert_eq!((ran.reported.exit_code, ran.stdout.len(), text(&ran.stderr)), (0, 10 << 20, "done\n".to_owned()));
    assert_eq!(ran.reported.stdout_dropped, 30_000_000 - (10 << 20));
    assert_eq!(ran.reported.stderr_dropped, 0);
}

#[tokio::test]
async fn the_time_limit_ends_the_program_and_all_it_has_started() {
    let (sandbox, client) = bare().await;
    // Processes that left their group, session or parent, and one without the variable that identifies them.
    let line = "sleep 4321 & setsid sleep 4321 & (setsid sleep 4321 &) ; env -i sh -c 'sleep 4321 & wait' & \
                sh -c 'trap \"\" TERM INT HUP; while :; do sleep 4321; done' & wait";
    let refused = run(&client, shell(line), 1000).await;
    assert_eq!(refusal(refused.map(drop)), ErrorCode::TimedOut);
    gone(&sandbox, "4321").await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_ends_its_program() {
    let (sandbox, client) = bare().await;
    let waiting = tokio::spawn(async move {
        let requested = Exec { program: shell("setsid sleep 5432 & sleep 5432"), timeout_ms: 600_000 };
        client.download(EXEC, &requested, Duration::from_secs(600)).await.map(drop)
    });
    until(|| sandbox.processes("sleep 5432").len() >= 2).await;
    waiting.abort();
    gone(&sandbox, "sleep 5432").await;
}

#[tokio::test]
async fn what_survives_its_parent_holds_nothing_up_and_goes_on() {
    let (_sandbox, client) = bare().await;
    let line = "(while :; do echo still here; sleep 0.05; date > /tmp/alive; done) & echo started";
    // The survivor outlives the time limit: a response that waits for it is a refusal.
    let ran = run(&client, shell(line), 60_000).await.unwrap();
    assert!(text(&ran.stdout).contains("started\n"));
    // It writes to a pipe whose reader was answered long ago, and keeps running.
    for _ in 0..3 {
        let ran = run(
            &client,
            shell("rm -f /tmp/alive; for n in $(seq 600); do [ -e /tmp/alive ] && exit 0; sleep 0.05; done; exit 1"),
            60_000,
        );
        assert_eq!(ran.await.unwrap().reported.exit_code, 0);
    }
}

#[tokio::test]
async fn a_spawned_program_is_followed_gets_input_and_is_ended() {
    let (_sandbox, client) = bare().await;
    let spawned =
        spawn(&client, "p1", shell("echo ready; while read line; do echo got:$line; done; echo eof"), None).await;
    assert!(spawned.pid > 1 && spawned.started_at_ms > 1_700_000_000_000);
    let mut output = follow(&client, "p1").await;
    assert_eq!(output.text("ready\n").await, "ready\n");

    let given = input("p1", b"hello\n", false);
    let written: Written = client.call(STDIN, &given, SHORT_TIMEOUT).await.unwrap();
    assert_eq!(written.written_bytes, 6);
    assert_eq!(output.text("got:hello\n").await, "got:hello\n");

    let status: ProcessStatus = client.call(STATUS, &name("p1"), SHORT_TIMEOUT).await.unwrap();
    assert_eq!(status.exit_code, None);
    assert!(status.mem_bytes > 100_000, "{status:?}");

    let refused = client.command(RESIZE, &Resize { process_id: "p1".to_owned(), size: SIZE }, SHORT_TIMEOUT).await;
    assert_eq!(refusal(refused), ErrorCode::InvalidState);

    client.command(KILL, &kill("p1", Signal::Term), SHORT_TIMEOUT).await.unwrap();
    assert_eq!(output.exit().await, 143);
    let status: ProcessStatus = client.call(STATUS, &name("p1"), SHORT_TIMEOUT).await.unwrap();
    assert_eq!(status, ProcessStatus { exit_code: Some(143), cpu_pct: 0.0, mem_bytes: 0 });
    assert_eq!(refusal(client.command(KILL, &kill("p1", Signal::Kill), SHORT_TIMEOUT).await), ErrorCode::InvalidState);
    assert_eq!(refusal(client.call::<Written>(STDIN, &given, SHORT_TIMEOUT).await.map(drop)), ErrorCode::InvalidState);
    assert_eq!(refusal(client.command(KILL, &kill("p2", Signal::Kill), SHORT_TIMEOUT).await), ErrorCode::Missing);

    // The buffered output comes first, also after the end.
    let mut output = follow(&client, "p1").await;
    assert_eq!(output.text("ready\ngot:hello\n").await, "ready\ngot:hello\n");
    assert_eq!(output.exit().await, 143);
}

fn input(id: &str, data: &[u8], is_last: bool) -> Stdin {
    Stdin { process_id: id.to_owned(), data_b64: STANDARD.encode(data), is_last }
}

#[tokio::test]
async fn the_input_of_a_program_ends_where_its_caller_ends_it() {
    let (_sandbox, client) = bare().await;
    for (id, terminal, line_end) in [("pipe", None, "\n"), ("terminal", Some(SIZE), "\r\n")] {
        for (data, is_last) in [(&b"one\n"[..], false), (b"two", true)] {
            if !is_last {
                spawn(&client, id, shell("stty -echo 2>/dev/null; cat; echo .; echo end"), terminal).await;
            }
            let written: Written = client.call(STDIN, &input(id, data, is_last), SHORT_TIMEOUT).await.unwrap();
            assert_eq!(written.written_bytes, data.len() as u64, "{id}");
        }
        let mut output = follow(&client, id).await;
        let printed = output.text(&format!("end{line_end}")).await.replace('\r', "");
        assert!(printed.ends_with("one\ntwo.\nend\n"), "{id}: {printed:?}");
        assert_eq!(output.exit().await, 0, "{id}");
    }
    spawn(&client, "open", shell("exec <&-; sleep 60"), None).await;
    client.call::<Written>(STDIN, &input("open", b"", true), SHORT_TIMEOUT).await.unwrap();
    let again = client.call::<Written>(STDIN, &input("open", b"more", false), SHORT_TIMEOUT).await;
    assert_eq!(refusal(again.map(drop)), ErrorCode::InvalidState);
}

const SIZE: TerminalSize = TerminalSize { cols: 100, rows: 30 };

#[tokio::test]
async fn a_program_with_a_terminal_sees_it_and_its_new_size() {
    let (_sandbox, client) = bare().await;
    // The shell starts nothing while it waits, because a shell that is starting a program may miss a signal.
    let line = "stty size; tty; trap 'stty size' WINCH; echo waiting; while :; do read line; done";
    spawn(&client, "t1", shell(line), Some(TerminalSize { cols: 80, rows: 24 })).await;
    let mut output = follow(&client, "t1").await;
    let begin = output.text("waiting\r\n").await;
    assert!(begin.starts_with("24 80\r\n/dev/pts/"), "{begin:?}");
    client.command(RESIZE, &Resize { process_id: "t1".to_owned(), size: SIZE }, SHORT_TIMEOUT).await.unwrap();
    assert_eq!(output.text("30 100\r\n").await, "30 100\r\n");
    // The interrupt key of the terminal.
    let given = input("t1", &[3], false);
    client.call::<Written>(STDIN, &given, SHORT_TIMEOUT).await.unwrap();
    assert_eq!(output.exit().await, 130);
}

#[tokio::test]
async fn a_reader_that_never_reads_costs_nothing_beyond_the_ring() {
    let (sandbox, client) = bare().await;
    spawn(&client, "warm", shell("true"), None).await;
    let before = resident(sandbox.agent());
    let requested = name("lines");
    spawn(&client, "lines", shell("seq 1000000; echo end >&2"), None).await;
    let unread = client.download(OUTPUT, &requested, SHORT_TIMEOUT).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.call::<ProcessStatus>(STATUS, &requested, SHORT_TIMEOUT).await.unwrap().exit_code.is_none() {
        assert!(Instant::now() < deadline, "a program that nobody reads does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let grown = resident(sandbox.agent()).saturating_sub(before);
    println!("10^6 lines, unread: the agent grew by {grown} KiB");
    assert!(grown < 6 << 10, "the agent grew by {grown} KiB");
    drop(unread);
    let mut output = follow(&client, "lines").await;
    let (mut read, mut dropped, mut last) = (0, 0, Vec::new());
    loop {
        match output.next().await {
            Output::Data { data_b64, dropped: missed, .. } => {
                last = STANDARD.decode(data_b64).unwrap();
                read += last.len() as u64;
                dropped += missed;
            }
            Output::Exit { exit_code } => break assert_eq!(exit_code, 0),
        }
    }
    assert_eq!(read + dropped, 6_888_896 + 4, "every byte was read or counted");
    assert!(dropped > 5_000_000 && last == b"end\n", "{dropped}, {last:?}");
}

#[tokio::test]
async fn a_session_runs_so_many_programs_at_once_and_no_more() {
    let (_sandbox, client) = bare().await;
    for n in 0..64 {
        spawn(&client, &format!("n{n}"), shell("exec sleep 6543"), None).await;
    }
    let requested = Spawn { process_id: "more".to_owned(), program: shell("true"), terminal: None, timeout_ms: None };
    assert_eq!(
        refusal(client.call::<Spawned>(SPAWN, &requested, SHORT_TIMEOUT).await.map(drop)),
        ErrorCode::LimitReached
    );
    client.command(KILL, &kill("n0", Signal::Kill), SHORT_TIMEOUT).await.unwrap();
    let deadline = Instant::now() + SHORT_TIMEOUT;
    while client.call::<Spawned>(SPAWN, &requested, SHORT_TIMEOUT).await.is_err() {
        assert!(Instant::now() < deadline, "the place of an ended program is not free");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn name(name: &str) -> ProcessName {
    ProcessName { process_id: name.to_owned() }
}

fn kill(name: &str, signal: Signal) -> Kill {
    Kill { process_id: name.to_owned(), signal }
}

async fn spawn(client: &AgentClient, name: &str, program: Program, terminal: Option<TerminalSize>) -> Spawned {
    let requested = Spawn { process_id: name.to_owned(), program, terminal, timeout_ms: None };
    client.call(SPAWN, &requested, SHORT_TIMEOUT).await.unwrap()
}

/// A reader that follows a program's output.
struct Follower {
    lines: casement_agent_protocol::client::Download,
    buffer: Vec<u8>,
}

async fn follow(client: &AgentClient, process: &str) -> Follower {
    Follower { lines: client.download(OUTPUT, &name(process), SHORT_TIMEOUT).await.unwrap(), buffer: Vec::new() }
}

impl Follower {
    async fn next(&mut self) -> Output {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).unwrap();
            }
            let part = tokio::time::timeout(SHORT_TIMEOUT, self.lines.next()).await.expect("more output");
            self.buffer.extend_from_slice(&part.expect("more output").unwrap());
        }
    }

    /// Returns the next standard output, until it ends with `end`.
    async fn text(&mut self, end: &str) -> String {
        let mut all = String::new();
        while !all.ends_with(end) {
            match self.next().await {
                Output::Data { stream: OutputStream::Stdout, data_b64, dropped: 0 } => {
                    all += &text(&STANDARD.decode(data_b64).unwrap());
                }
                other => panic!("{other:?} after {all:?}"),
            }
        }
        all
    }

    /// Returns the exit code of the program, and discards the output before it.
    async fn exit(&mut self) -> i32 {
        loop {
            if let Output::Exit { exit_code } = self.next().await {
                return exit_code;
            }
        }
    }
}

async fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SHORT_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {SHORT_TIMEOUT:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the anonymous memory of a process, in KiB. Its mapped files are not counted: they grow as more code runs.
fn resident(pid: u32) -> u64 {
    let field = crate::sandbox::field(pid, "RssAnon:").unwrap();
    field.trim_end_matches(" kB").trim().parse().unwrap()
}
