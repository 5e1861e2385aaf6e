//! The examples for readers, as they stand in `docs/examples` and in the README: each does what it says.

use anyhow::Context as _;

use super::support::{Clients, Shared, png_size, repository};

/// What a headless browser of the pool shows unless it was asked for another size.
const WHOLE: Option<(u32, u32)> = Some((1920, 1080));

#[test]
fn the_example_of_files_takes_a_directory_home() -> anyhow::Result<()> {
    let run = Clients::find()?.run(&Shared::get().server, "docs/examples/files.py", &[])?;

    let saw = "drwxr-xr-x 0 /tmp/work/data\n-rw------- 5 /tmp/work/notes.txt\nCREATE /tmp/work/data/new.txt\nnew\n";
    assert_eq!(run.stdout, saw);
    assert!(run.file("work.zip")?.starts_with(b"PK"));
    Ok(())
}

#[test]
fn the_curl_example_leaves_a_picture() -> anyhow::Result<()> {
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
fn the_python_client_example_prints_the_pool() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/kernel_client.py", &[&pages.url("/form")])?;

    assert_eq!(run.stdout, "default\n");
    assert_eq!(png_size(&run.file("kernel.png")?), WHOLE);
    Ok(())
}

#[test]
fn the_extensions_example_prints_what_they_write_into_a_title() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/extensions.py", &[&pages.url("/form")])?;

    let mut words: Vec<&str> = run.stdout.trim_end().split(' ').collect();
    // Which of two extensions a page meets first is Chromium's choice.
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

#[test]
fn the_curl_lines_of_the_readme_take_a_picture_and_give_the_browser_back() -> anyhow::Result<()> {
    let server = &Shared::get().server;

    let run = Clients::find()?.run_text(server, "readme.sh", &readme("```sh\nKEY=")?, &[])?;

    assert_eq!(png_size(&run.file("screenshot.png")?), WHOLE);
    let session: serde_json::Value = serde_json::from_slice(&run.file("session.json")?)?;
    let id = session["session_id"].as_str().context("no session_id")?;
    assert_eq!(server.get(&format!("/browsers/{id}"))?.status, 404, "it was given back");
    Ok(())
}

#[test]
fn the_playwright_lines_of_the_readme_take_a_picture_of_the_page() -> anyhow::Result<()> {
    let server = &Shared::get().server;

    let run = Clients::find()?.run_text(server, "first.mjs", &readme("```js\n")?, &[])?;

    assert_eq!(png_size(&run.file("example.png")?), WHOLE);
    Ok(())
}

/// The block of the README that begins so, with this test's server, directory and page in place of the usual ones.
fn readme(beginning: &str) -> anyhow::Result<String> {
    let Shared { server, pages } = Shared::get();
    let text = std::fs::read_to_string(repository().join("README.md"))?;
    let start = text.find(beginning).with_context(|| format!("the README has no block {beginning:?}"))?;
    let block = text[start..].split_once('\n').map(|(_, rest)| rest).context("nothing behind the fence")?;
    let block = block.split("\n```").next().context("the block has no end")?;
    let data_dir = server.data_dir();
    let put = [
        ("http://127.0.0.1:8080", server.url()),
        ("/var/lib/casement", data_dir.to_string_lossy().into_owned()),
        ("https://example.com", pages.url("/form")),
    ];
    Ok(put.iter().fold(format!("{block}\n"), |block, (usual, here)| block.replace(usual, here)))
}
