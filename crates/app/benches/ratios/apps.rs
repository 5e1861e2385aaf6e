//! Measures invocations of trivial actions, against a cold start of the interpreter with the same imports; and fifty
//! concurrent callers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{Options, Server, until};
use serde_json::{Value, json};

use crate::client::Client;
use crate::commits::Commits;
use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

/// The number of sequential calls of each app; each finds a loaded process.
const CALLS: usize = 30;
const COLD: usize = 10;
/// The number of concurrent callers, and the limit of invocations.
const CALLERS: u32 = 50;
const LIMIT: u32 = 20;
const TIMEOUT: Duration = Duration::from_secs(600);

const PYTHON: &str = "import kernel\n\napp = kernel.App('bench-python')\n\n\n\
    @app.action('trivial')\ndef trivial(context, payload):\n    return payload\n";
const NODE: &str = "import Kernel from '@onkernel/sdk';\n\nconst kernel = new Kernel();\n\
    const app = kernel.app('bench-node');\n\napp.action('trivial', async (context, payload) => payload);\n";
const PACKAGE: &str = r#"{"type":"module","dependencies":{"@onkernel/sdk":"0.78.0"}}"#;

/// Records the number of running invocations at every change of an invocation.
const TRACE: &str = "CREATE TABLE trace (unfinished bigint NOT NULL);
    CREATE FUNCTION trace_invocations() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO trace SELECT count(*) FROM invocations WHERE finished_at IS NULL; RETURN NULL;
    END $$;
    CREATE TRIGGER trace AFTER INSERT OR UPDATE ON invocations FOR EACH STATEMENT EXECUTE FUNCTION trace_invocations()";

struct Program {
    name: &'static str,
    app: &'static str,
    entrypoint: &'static str,
    files: &'static [(&'static str, &'static str)],
}

const PROGRAMS: [Program; 2] = [
    Program {
        name: "Python",
        app: "bench-python",
        entrypoint: "main.py",
        files: &[("main.py", PYTHON), ("requirements.txt", "kernel==0.80.0\n")],
    },
    Program {
        name: "Node",
        app: "bench-node",
        entrypoint: "main.mjs",
        files: &[("main.mjs", NODE), ("package.json", PACKAGE)],
    },
];

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    for program in &PROGRAMS {
        let deployment = deploy(&server, program)?;
        alone(&server, program, table)?;
        if program.name == "Python" {
            many(&server, program, table)?;
        }
        server.delete(&format!("/deployments/{deployment}"))?.expect(204)?;
    }
    Ok(())
}

/// Deploys the app and waits until it runs.
fn deploy(server: &Server, program: &Program) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    for (path, text) in program.files {
        fs::write(folder.path().join(path), text)?;
    }
    let archive = casement_archive::package::pack(folder.path())?;
    let part = |name: &str, content: &[u8]| {
        let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        [head.as_bytes(), content, b"\r\n"].concat()
    };
    let mut request = Request::new("POST", "/deployments").bearer(server.key());
    request = request.header("Content-Type", "multipart/form-data; boundary=b");
    let entrypoint = part("entrypoint_rel_path", program.entrypoint.as_bytes());
    request.body = Some([entrypoint, part("file", &archive), b"--b--\r\n".to_vec()].concat());
    let made = request.send(server.address())?.expect(201)?.json()?;
    let id = made["id"].as_str().context("no id")?.to_owned();
    let end = until("the program is built", TIMEOUT, || {
        let found = server.get(&format!("/deployments/{id}")).ok()?.json().ok()?;
        (!matches!(found["status"].as_str(), Some("queued" | "in_progress"))).then_some(found)
    })?;
    ensure!(end["status"] == "running", "{end}");
    Ok(id)
}

fn body(program: &Program, payload: &str) -> Value {
    json!({ "app_name": program.app, "version": "latest", "action_name": "trivial", "payload": payload })
}

/// Measures sequential calls. Each begins when a loaded process is ready and the machine is idle.
fn alone(server: &Server, program: &Program, table: &mut Table) -> anyhow::Result<()> {
    let mut client = Client::of(server)?;
    let invocation = body(program, "[1]");
    let (mut ours, mut cold) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        quiet();
        let end = ours.time(|| client.call("POST", "/invocations", Some(&invocation)))?.expect(200)?.json()?;
        ensure!(end["output"] == "[1]", "{end}");
    }
    let start = cold_start(server, program)?;
    for _ in 0..COLD {
        quiet();
        cold.time(start.as_ref())?;
    }
    let (p50, p99, cold) = (ours.p50(), ours.p99(), cold.p50());
    let against = || format!("starting {} with the same imports, {}", program.name, ms(cold));
    let row = Row::new(format!("trivial action in {}, sync, p50 of {CALLS}", program.name), ms(p50));
    table.add(row.against(against(), p50 / cold).target("< 150 ms", p50, Limit::Most(149.99)));
    table.add(Row::new("the same, p99", ms(p99)).against(against(), p99 / cold));
    Ok(())
}

/// Returns a function that starts the interpreter with the built files and waits for the end of its imports.
fn cold_start(server: &Server, program: &Program) -> anyhow::Result<Box<dyn Fn() -> anyhow::Result<()>>> {
    let artifacts = server.data_dir().join("apps/artifacts");
    let mut built = fs::read_dir(artifacts)?.flatten().map(|entry| entry.path());
    let built = built.find(|path| path.join("app").join(program.entrypoint).is_file());
    let built = built.context("nothing was built")?;
    let (interpreter, packages) = match program.name {
        "Python" => (PathBuf::from("/usr/bin/python3"), site_packages(&built)?),
        _ => (PathBuf::from("node"), PathBuf::new()),
    };
    let entrypoint = built.join("app").join(program.entrypoint);
    Ok(Box::new(move || {
        let mut command = Command::new(&interpreter);
        command.arg(&entrypoint).env("PYTHONPATH", &packages).env("KERNEL_API_KEY", "none");
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("no interpreter")?;
        ensure!(status.success(), "{} ended with {status}", entrypoint.display());
        Ok(())
    }))
}

fn site_packages(built: &Path) -> anyhow::Result<PathBuf> {
    let versions = fs::read_dir(built.join("venv/lib"))?.flatten();
    let mut found = versions.map(|entry| entry.path().join("site-packages")).filter(|path| path.is_dir());
    found.next().context("no packages were installed")
}

/// Measures concurrent callers with a smaller limit; refused calls are repeated.
fn many(server: &Server, program: &Program, table: &mut Table) -> anyhow::Result<()> {
    let database = Commits::beside(server)?;
    database.ask(TRACE)?;
    let limits = json!({ "max_concurrent_invocations": LIMIT });
    server.send("PATCH", "/org/projects/default/limits", Some(&limits))?.expect(200)?;
    quiet();
    let began = Instant::now();
    let done: Vec<bool> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|caller| scope.spawn(move || insist(server, program, caller))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap_or(Ok(false))).collect::<anyhow::Result<_>>()
    })?;
    let took = began.elapsed().as_secs_f64() * 1000.0;
    let right = done.iter().filter(|right| **right).count() as f64;
    let max: f64 = database.ask("SELECT max(unfinished) FROM trace")?.trim().parse()?;
    table
        .add(Row::new(format!("{CALLERS} invocations at once, of which {LIMIT} may be: all answered after"), ms(took)));
    let row = Row::new("of them with their own result", format!("{right}"));
    table.add(row.target("all", right, Limit::Least(f64::from(CALLERS))));
    let row = Row::new("the most that there were at a time", format!("{max}"));
    table.add(row.target(&format!("≤ {LIMIT}"), max, Limit::Most(f64::from(LIMIT))));
    Ok(())
}

/// Calls until the limit does not refuse the call. Returns true if the result is that of this caller.
fn insist(server: &Server, program: &Program, caller: u32) -> anyhow::Result<bool> {
    let payload = format!("[{caller}]");
    let invocation = body(program, &payload);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let answer = server.post("/invocations", &invocation)?;
        if answer.status == 429 {
            ensure!(Instant::now() < deadline, "refused for {TIMEOUT:?}");
            thread::sleep(Duration::from_millis(50));
            continue;
        }
        return Ok(answer.expect(200)?.json()?["output"] == payload.as_str());
    }
}
