//! The tables of `docs/chromium-switches.md`.

use std::fmt::Write as _;

use super::table::{FEATURES_OFF, FEATURES_ON, Kind, SWITCHES, Switch, When};

const COLUMNS: [Kind; 4] = [Kind::Headless, Kind::HeadlessStealth, Kind::Display, Kind::DisplayStealth];

fn table(page: &mut String, heading: &str, switches: &[Switch]) {
    let columns = "| headless | headless, stealth | display | display, stealth |";
    let _ = write!(page, "\n### {heading}\n\n| switch {columns} reason |\n| --- |{} --- |\n", " :-: |".repeat(4));
    for switch in switches {
        let given = COLUMNS.map(|kind| if switch.is_given(kind) { "×" } else { "" }).join(" | ");
        let when = match switch.when {
            When::Always => "",
            When::WithExtensions => "with extensions: ",
            When::WithoutExtensions => "without extensions: ",
            When::Restored => "after a restart: ",
            When::Kiosk => "with `kiosk_mode`: ",
        };
        let _ = writeln!(page, "| `{}` | {given} | {when}{} |", switch.text, switch.reason);
    }
}

#[test]
fn the_page_of_switches_says_what_chromium_is_started_with() {
    let mut tables = String::new();
    table(&mut tables, "Switches", SWITCHES);
    table(&mut tables, "Features off (`--disable-features`)", FEATURES_OFF);
    table(&mut tables, "Features on (`--enable-features`)", FEATURES_ON);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/chromium-switches.md");
    let committed = std::fs::read_to_string(path).expect("docs/chromium-switches.md can be read");
    let (head, rest) =
        committed.split_once("\n<!-- tables: begin -->\n").expect("the page has a mark before its tables");
    let (_, tail) = rest.split_once("\n<!-- tables: end -->\n").expect("the page has a mark after its tables");
    let page = format!("{head}\n<!-- tables: begin -->\n{tables}\n<!-- tables: end -->\n{tail}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).expect("docs/chromium-switches.md can be written");
    }
    let committed = std::fs::read_to_string(path).expect("docs/chromium-switches.md can be read");
    assert!(committed == page, "run UPDATE_DOCS=1 cargo test -p casement-agent --lib flags");
}
