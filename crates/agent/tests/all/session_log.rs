//! Logs of the session.

use std::time::{Duration, Instant};

use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::{AgentClient, Download};
use casement_agent_protocol::process::{EXEC, Exec, Program};
use casement_agent_protocol::session_log::{FollowLog, LogLine, LogSource, STREAM};
use futures_util::StreamExt as _;

use crate::headless::refusal;
use crate::sandbox::{SILENT, Sandbox, TEST_TIMEOUT, config};

const SHORT_TIMEOUT: Duration = Duration::from_secs(90);

async fn run(client: &AgentClient, line: &str) {
    let program = Program { command: line.to_owned(), ..Program::default() };
    let mut answer = client.download(EXEC, &Exec { program, timeout_ms: 60_000 }, SHORT_TIMEOUT).await.unwrap();
    let head = answer.next().await.unwrap().unwrap();
    assert!(head.starts_with(b"{\"exit_code\":0,"), "{line}: {}", String::from_utf8_lossy(&head));
}

async fn follow(client: &AgentClient, source: LogSource, follow: bool) -> Lines {
    Lines {
        content: client.download(STREAM, &FollowLog { source, follow }, SHORT_TIMEOUT).await.unwrap(),
        buffer: Vec::new(),
    }
}

fn file(path: &str) -> LogSource {
    LogSource::Path(path.to_owned())
}

struct Lines {
    content: Download,
    buffer: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> Option<LogLine> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let part = tokio::time::timeout(SHORT_TIMEOUT, self.content.next()).await.expect("a line or the end")?;
            self.buffer.extend_from_slice(&part.unwrap());
        }
    }

    async fn messages(&mut self, count: usize) -> Vec<String> {
        let mut messages = Vec::new();
        for _ in 0..count {
            messages.push(self.next().await.expect("a line").message);
        }
        messages
    }

    async fn rest(mut self) -> Vec<LogLine> {
        let mut lines = Vec::new();
        while let Some(line) = self.next().await {
            lines.push(line);
        }
        lines
    }
}

#[tokio::test]
async fn a_file_is_followed_through_growth_cuts_and_rotation() {
    let mut config = config(true);
    config.chromium = SILENT.into();
    let sandbox = Sandbox::start(&config);
    let client = sandbox.client().await;
    run(&client, r#"mkdir /tmp/d; printf 'one\n\033[31mtwo' > /tmp/d/log"#).await;
    let mut lines = follow(&client, file("/tmp/d/log"), true).await;
    assert_eq!(lines.messages(1).await, ["one"]);
    run(&client, r#"printf ' end\nthree\n' >> /tmp/d/log"#).await;
    assert_eq!(lines.messages(2).await, ["\u{1b}[31mtwo end", "three"]);
    // Longer than the text after the truncation, so that a late check of the file sees that it has become shorter.
    run(&client, "mv /tmp/d/log /tmp/d/log.1; echo new and long > /tmp/d/log").await;
    assert_eq!(lines.messages(1).await, ["new and long"]);
    run(&client, ": > /tmp/d/log").await;
    run(&client, "sleep 0.2; echo again >> /tmp/d/log").await;
    assert_eq!(lines.messages(1).await, ["again"]);
    run(&client, "rm /tmp/d/log; sleep 0.1; echo back > /tmp/d/log").await;
    assert_eq!(lines.messages(1).await, ["back"]);

    let whole = follow(&client, file("/tmp/d/log.1"), false).await.rest().await;
    let messages: Vec<_> = whole.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(messages, ["one", "\u{1b}[31mtwo end", "three"]);
    assert!(whole.iter().all(|line| line.read_at_ms > 1_700_000_000_000));
}

#[tokio::test]
async fn what_is_no_log_is_refused_at_once() {
    let mut config = config(true);
    config.chromium = SILENT.into();
    let sandbox = Sandbox::start(&config);
    let client = sandbox.client().await;
    run(&client, "mkfifo /tmp/fifo; ln -s /proc/1/environ /tmp/environ; touch /tmp/mine; chmod 0 /tmp/mine").await;
    for (path, code) in [
        ("/tmp/fifo", ErrorCode::NotAllowed),
        ("/tmp/environ", ErrorCode::NotAllowed),
        ("/dev/zero", ErrorCode::NotAllowed),
        ("/dev/pts/ptmx", ErrorCode::NotAllowed),
        ("/proc/self/root/proc/kmsg", ErrorCode::PathForbidden),
        ("/tmp", ErrorCode::IsADirectory),
        ("/tmp/mine", ErrorCode::PathForbidden),
        ("/tmp/../nothing", ErrorCode::Missing),
        ("/tmp/mine/below", ErrorCode::Missing),
    ] {
        let requested = FollowLog { source: file(path), follow: true };
        let refused = client.download(STREAM, &requested, SHORT_TIMEOUT).await;
        let code_given = refusal(refused.map(drop));
        assert!(code_given == code || path.contains("kmsg") || path.contains("ptmx"), "{path}: {code_given:?}");
    }
}

#[tokio::test]
async fn the_sessions_own_programs_are_reported() {
    let (_sandbox, _, client) = Sandbox::with_browser(&config(false), "logs").await;
    let deadline = Instant::now() + TEST_TIMEOUT;
    while follow(&client, LogSource::Chromium, false).await.rest().await.is_empty() {
        assert!(Instant::now() < deadline, "Chromium always has something to complain of");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    follow(&client, LogSource::Display, false).await.rest().await;
    follow(&client, LogSource::Agent, false).await.rest().await;
}
