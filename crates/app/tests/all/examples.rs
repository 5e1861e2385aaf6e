//! Tests of the examples of `docs/examples`, of other documentation pages and of the README.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::png_size;
use casement_test_support::program::{Clients, Options, Server, Shared, repository, until};
use serde_json::json;

/// The default viewport of a headless browser.
const WHOLE: Option<(u32, u32)> = Some((1920, 1080));
/// The timeout until a browser of a pool has started, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn the_files_example_downloads_a_directory() -> anyhow::Result<()> {
    let run = Clients::find()?.run(&Shared::get().server, "docs/examples/files.py", &[])?;

    let saw = "drwxr-xr-x 0 /tmp/work/data\n-rw------- 5 /tmp/work/notes.txt\nCREATE /tmp/work/data/new.txt\nnew\n";
    assert_eq!(run.stdout, saw);
    assert!(run.file("work.zip")?.starts_with(b"PK"));
    Ok(())
}

#[test]
fn the_curl_example_saves_a_screenshot() -> anyhow::Result<()> {
    let run = Clients::find()?.run(&Shared::get().server, "docs/examples/curl.sh", &[])?;

    assert_eq!(run.stdout, "screenshot.png\n");
    assert_eq!(png_size(&run.file("screenshot.png")?), WHOLE);
    Ok(())
}

#[test]
fn the_playwright_example_prints_the_title() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/playwright.mjs", &[&pages.url("/form")])?;

    assert_eq!(run.stdout, "A form\n");
    assert_eq!(png_size(&run.file("playwright.png")?), WHOLE);
    Ok(())
}

#[test]
fn the_puppeteer_example_prints_the_title_over_cdp_and_over_bidi() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let clients = Clients::find()?;
    for protocol in ["cdp", "bidi"] {
        let run = clients.run(server, "docs/examples/puppeteer.mjs", &[&pages.url("/form"), protocol])?;

        assert_eq!(run.stdout, "A form\n", "{protocol}");
        assert_eq!(png_size(&run.file("puppeteer.png")?), WHOLE, "{protocol}");
    }
    Ok(())
}

#[test]
fn the_selenium_example_prints_the_title() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/selenium_remote.py", &[&pages.url("/form")])?;

    assert_eq!(run.stdout, "A form\n");
    assert!(png_size(&run.file("selenium.png")?).is_some());
    Ok(())
}

#[test]
fn the_webdriverio_example_prints_the_title() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/webdriverio.mjs", &[&pages.url("/form")])?;

    assert_eq!(run.stdout, "A form\n");
    assert!(png_size(&run.file("webdriverio.png")?).is_some());
    Ok(())
}

#[test]
fn the_python_client_example_prints_the_pool() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/kernel_client.py", &[&pages.url("/form")])?;

    assert_eq!(run.stdout, "default\n");
    assert_eq!(png_size(&run.file("kernel.png")?), WHOLE);
    Ok(())
}

#[test]
fn the_extensions_example_prints_the_title_that_an_extension_wrote() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/extensions.py", &[&pages.url("/form")])?;

    let mut words: Vec<&str> = run.stdout.trim_end().split(' ').collect();
    // Chromium chooses the order of two extensions.
    words[2..].sort_unstable();
    assert_eq!(words, ["A", "form", "kept", "loaded"]);
    Ok(())
}

#[test]
fn the_profiles_example_is_logged_in_the_second_time() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/profiles.py", &[&pages.url("/form")])?;

    assert_eq!(run.stdout, "login=ann dark\n");
    Ok(())
}

/// A page of `docs`, the commands to run before its own, and a check of the output.
struct Lines {
    page: &'static str,
    before: &'static str,
    prints: fn(&str) -> bool,
}

const PAGES: [Lines; 9] = [
    Lines { page: "computer", before: "", prints: |output| output.is_empty() },
    Lines {
        page: "fs",
        before: "echo a note > notes.txt",
        prints: |output| output.contains("\"/tmp/work/notes.txt\""),
    },
    Lines { page: "script", before: "", prints: |output| output.contains("\"A form\"") },
    Lines { page: "process", before: "", prints: |output| output == "casement\n/home/casement\n" },
    Lines { page: "replays", before: "", prints: |output| output.is_empty() },
    Lines { page: "extensions", before: ZIPPED, prints: |output| output.matches("\"blocker\"").count() == 1 },
    Lines { page: "curl", before: "", prints: |output| output.contains("<title>A form</title>") },
    Lines {
        page: "logs",
        before: "curl -X PUT \"http://127.0.0.1:8080/browsers/$SESSION/fs/write_file?path=/tmp/app.log\" \\
            -H \"Authorization: Bearer $KEY\" -d 'listening on port 3000'",
        prints: |output| output.contains("\"message\":\"listening on port 3000\""),
    },
    Lines { page: "live-view", before: "", prints: |output| output.starts_with("http://") && output.contains("?jwt=") },
];

const ZIPPED: &str = "echo '{\"manifest_version\": 3, \"name\": \"x\", \"version\": \"1\"}' > manifest.json
python3 -m zipfile -c blocker.zip manifest.json
cp blocker.zip another.zip";

#[test]
fn the_shell_commands_of_every_session_page_work() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let session = server.create(&json!({ "headless": true }))?;
    for Lines { page, before, prints } in PAGES {
        let lines = block(&format!("docs/{page}.md"), "```sh\n")?;
        // With `--fail-with-body`, a refused request fails the script.
        let text = format!(
            "set -e\ncurl() {{ command curl --silent --show-error --fail-with-body \"$@\"; }}\n\
             KEY={} SESSION={}\n{}\n{lines}",
            server.key(),
            session.id(),
            here(before),
        );
        let run = Clients::find()?.run_text(server, "lines.sh", &text, &[])?;
        ensure!(prints(&run.stdout), "docs/{page}.md prints {:?}", run.stdout);
        match page {
            "computer" => assert!(png_size(&run.file("screen.png")?).is_some()),
            "fs" => ensure!(run.file("work.zip")?.starts_with(b"PK"), "no archive"),
            "replays" => ensure!(run.file("replay.mp4")?[4..].starts_with(b"ftyp"), "no video"),
            "live-view" => {
                let path = run.stdout.trim().strip_prefix(&server.url()).context("another server's")?;
                server.get(path)?.expect(200)?;
            }
            "extensions" => {
                let made = run.stdout.split("\"session_id\":\"").nth(1).context("no session")?;
                let id = made.split('"').next().unwrap_or_default();
                server.delete(&format!("/browsers/{id}"))?.expect(204)?;
                server.delete("/extensions/blocker")?.expect(204)?;
            }
            _ => {}
        }
    }
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

#[test]
fn the_curl_commands_of_the_readme_take_a_screenshot_and_release_the_browser() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    until_one_is_free()?;

    let run = Clients::find()?.run_text(server, "readme.sh", &readme("```sh\nKEY=")?, &[])?;

    assert_eq!(png_size(&run.file("screenshot.png")?), WHOLE);
    let session: serde_json::Value = serde_json::from_slice(&run.file("session.json")?)?;
    let id = session["session_id"].as_str().context("no session_id")?;
    assert_eq!(server.get(&format!("/browsers/{id}"))?.status, 404, "it was given back");
    Ok(())
}

#[test]
fn the_playwright_lines_of_the_readme_take_a_screenshot() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    until_one_is_free()?;

    let run = Clients::find()?.run_text(server, "first.mjs", &readme("```js\n")?, &[])?;

    assert_eq!(png_size(&run.file("example.png")?), WHOLE);
    Ok(())
}

#[test]
fn the_example_printed_at_start_works_and_the_start_shows_how_its_pools_fill() -> anyhow::Result<()> {
    // A server of its own, because the output about pools begins with the start of the server.
    let mut server = Server::start(Options { first_start: true, ..Options::default() })?;

    the_printed_example_takes_a_picture(&server)?;

    let lines = [0, 1, 2].map(|ready| format!("pool default: {ready} of 2 browsers ready"));
    until_printed(&server, &lines[2])?;
    let output = filling(&server);
    // Each line is printed at most once and in this order; two browsers may become ready at the same time.
    assert_eq!(output, lines.into_iter().filter(|line| output.contains(line)).collect::<Vec<_>>());
    assert!(server.output_lines()[0].starts_with("casement ready http://"), "{:?}", server.output_lines());

    let pool = |name: &str| server.post("/browser_pools", &json!({ "name": name, "size": 1, "headless": true }));
    pool("later")?.expect(201)?;
    server.until_available("later", 1)?;
    assert_eq!(filling(&server), output, "a pool that was made after the start");

    pool("last")?.expect(201)?;
    server.kill()?;
    server.restart()?;
    until_printed(&server, "pool last: 1 of 1 browsers ready")?;
    let output = filling(&server);
    assert!(output.iter().all(|line| line.starts_with("pool last: ")), "the others were full: {output:?}");
    Ok(())
}

#[test]
fn the_example_printed_without_a_default_pool_takes_a_screenshot() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;

    the_printed_example_takes_a_picture(&server)?;

    assert!(filling(&server).is_empty(), "there is no pool: {:?}", server.output_lines());
    Ok(())
}

/// Runs the example that the server prints at its start.
fn the_printed_example_takes_a_picture(server: &Server) -> anyhow::Result<()> {
    let example = until("an example on standard output", START_TIMEOUT, || {
        let output = server.output_lines();
        let lines: Vec<&str> = output.iter().filter_map(|line| line.strip_prefix("    ")).collect();
        lines.last()?.ends_with("screenshot.png").then(|| lines.join("\n") + "\n")
    })?;

    let run = Clients::find()?.run_text(server, "printed.sh", &example, &[])?;

    ensure!(png_size(&run.file("screenshot.png")?).is_some(), "no picture:\n{example}");
    Ok(())
}

/// Returns the output lines about the filling of pools.
fn filling(server: &Server) -> Vec<String> {
    server.output_lines().into_iter().filter(|line| line.starts_with("pool ")).collect()
}

fn until_printed(server: &Server, line: &str) -> anyhow::Result<()> {
    until(line, START_TIMEOUT, || server.output_lines().iter().any(|output| output == line).then_some(()))
        .with_context(|| format!("it has said {:?}", server.output_lines()))
}

/// Waits for a free browser, because the commands of the README request a browser only once.
fn until_one_is_free() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    until("a browser of the default pool", START_TIMEOUT, || {
        let pool = server.get("/browser_pools/default").ok()?.json().ok()?;
        (pool["available_count"].as_u64()? > 0).then_some(())
    })
}

/// Returns the block of the README that begins with a text, with the server, directory and page of this test.
fn readme(beginning: &str) -> anyhow::Result<String> {
    block("README.md", beginning)
}

/// Returns the block of a file that begins with a text, with the server, directory and page of this test.
fn block(file: &str, beginning: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(repository().join(file))?;
    let start = text.find(beginning).with_context(|| format!("{file} has no block {beginning:?}"))?;
    let block = text[start..].split_once('\n').map(|(_, rest)| rest).context("nothing behind the fence")?;
    let block = block.split("\n```").next().context("the block has no end")?;
    Ok(here(block))
}

fn here(block: &str) -> String {
    let Shared { server, pages } = Shared::get();
    let data_dir = server.data_dir();
    let put = [
        ("http://127.0.0.1:8080", server.url()),
        ("/var/lib/casement", data_dir.to_string_lossy().into_owned()),
        ("https://example.com", pages.url("/form")),
    ];
    put.iter().fold(format!("{block}\n"), |block, (usual, here)| block.replace(usual, here))
}
