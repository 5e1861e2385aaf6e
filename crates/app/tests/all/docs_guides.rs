//! Tests that the commands of the guides work: the blocks ```` ```sh ```` of each page run as one script. Blocks
//! ```` ```sh norun ```` are left out: they install packages, run programs of others, or read the system's log.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Clients, Options, Pages, Server, repository};

/// The lines with which a page names the reader's server and a public page. The test has its own.
const READERS_OWN: [&str; 3] = [
    "export CASEMENT_URL=http://127.0.0.1:8080",
    "export CASEMENT_KEY=$(cat /var/lib/casement/api-key)",
    "export PAGE=https://example.com",
];

#[test]
fn the_commands_of_every_guide_work() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    // A first start, because the guides use the pool `default`; a server of its own, because they create what other
    // tests may have created under the same name.
    let server = Server::start(Options { first_start: true, ..Options::reaching(&pages) })?;
    let clients = Clients::find()?;
    let first_line = first_line(&clients, &pages.url("/form"))?;

    let mut failures = Vec::new();
    for guide in guides()? {
        let script = script(&first_line, &fs::read_to_string(&guide)?);
        if let Err(error) = clients.run_text(&server, "guide.sh", &script, &[]) {
            failures.push(format!("{}: {error:#}", guide.display()));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

/// Returns the pages with commands, in the order of their names.
fn guides() -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(repository().join("docs/guides"))?;
    let mut guides = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    guides.sort();
    ensure!(guides.len() > 10, "there are {} guides", guides.len());
    Ok(guides)
}

/// Returns the line that replaces the title of a page: it continues with bash, which reports the line of a failure, and
/// sets what a reader has.
fn first_line(clients: &Clients, page: &str) -> anyhow::Result<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_casement")).parent().context("the program has no folder")?;
    let (program, python) = (program.display(), clients.python_programs());
    Ok(format!(
        "[ -n \"${{BASH_VERSION-}}\" ] || exec bash -euo pipefail \"$0\"; \
         trap 'echo \"line $LINENO: $BASH_COMMAND\" >&2' ERR; \
         export PAGE='{page}' HOME=\"$PWD\" PATH='{}':'{program}':\"$PATH\"",
        python.display()
    ))
}

/// Returns the script of a page. A command has the same line number as in the page.
fn script(first_line: &str, page: &str) -> String {
    let mut in_block = false;
    let lines = page.lines().skip(1).map(|line| match line {
        "```sh" => {
            in_block = true;
            ""
        }
        "```" => {
            in_block = false;
            ""
        }
        line if in_block && !READERS_OWN.contains(&line) => line,
        _ => "",
    });
    let lines: Vec<&str> = std::iter::once(first_line).chain(lines).collect();
    lines.join("\n") + "\n"
}

#[test]
fn a_command_keeps_its_line_and_what_is_not_run_is_left_out() {
    let page =
        "# A page\n\n```sh norun\napt install x\n```\n```sh\nexport PAGE=https://example.com\necho here\n```\ntext\n";

    assert_eq!(script("true", page), "true\n\n\n\n\n\n\necho here\n\n\n");
}
