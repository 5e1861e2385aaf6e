//! Trees that no archive can hold, requested like a server requests them.

use std::time::Duration;

use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::AgentClient;
use casement_agent_protocol::fs::{INFO, Path, READ, ZIP};

use crate::headless::refusal;
use crate::process::{run, shell, without_browser};
use crate::sandbox::Sandbox;

const WITHIN: Duration = Duration::from_secs(90);

async fn ask(client: &AgentClient, operation: &'static str, path: &str) -> Result<Vec<u8>, ErrorCode> {
    let requested = Path { path: path.to_owned() };
    let answer = client.download(operation, &requested, WITHIN).await;
    let Ok(bytes) = answer else { return Err(refusal(answer.map(drop))) };
    Ok(bytes.collect(usize::MAX).await.unwrap().into())
}

#[tokio::test]
async fn a_tree_with_a_fifo_a_terabyte_of_holes_or_4000_levels_holds_nothing_up() {
    let sandbox = Sandbox::start(&without_browser());
    let client = sandbox.client().await;
    let made = "import os
for name in ('fifo', 'sparse', 'deep'): os.makedirs('/tmp/' + name)
os.mkfifo('/tmp/fifo/x')
open('/tmp/fifo/kept', 'w').write('kept')
os.truncate(os.open('/tmp/sparse/x', os.O_CREAT | os.O_WRONLY), 1 << 40)
os.chdir('/tmp/deep')
for level in range(4000): os.mkdir('d'); os.chdir('d')
open('last', 'w').close()";
    let done = run(&client, shell(&format!("python3 -c \"{made}\"")), 60_000).await.unwrap();
    assert_eq!(done.reported.exit_code, 0, "{}", String::from_utf8_lossy(&done.stderr));

    let packed = ask(&client, ZIP, "/tmp/fifo").await.unwrap();
    let holds = |name: &[u8]| packed.windows(name.len()).any(|window| window == name);
    assert!(holds(b"kept") && !packed.is_empty());
    for (operation, path, code) in [
        (READ, "/tmp/fifo/x", ErrorCode::PathForbidden),
        (ZIP, "/tmp/fifo/x", ErrorCode::NotADirectory),
        (ZIP, "/tmp/sparse", ErrorCode::TooLarge),
        (ZIP, "/tmp/deep", ErrorCode::TooLarge),
    ] {
        assert_eq!(ask(&client, operation, path).await, Err(code), "{operation} {path}");
        assert!(ask(&client, INFO, "/tmp/fifo/kept").await.is_ok(), "the agent answers after {operation} {path}");
    }
}
