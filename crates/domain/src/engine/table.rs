//! The table of what each kind of engine can do, for the documentation.

use std::fmt::Write as _;

use super::{Capability, EngineDescription, EngineKind, EngineName, Support};

/// The line before the table in a page.
pub const TABLE_BEGIN: &str = "<!-- engines -->";
/// The line after the table in a page.
pub const TABLE_END: &str = "<!-- /engines -->";

/// Returns the Markdown table of all capabilities, with a column for each kind of engine.
#[must_use]
pub fn table() -> String {
    let engines = [EngineDescription::local(), EngineDescription::webdriver(EngineName::LOCAL, None)];
    let [local, webdriver] = EngineKind::ALL.map(EngineKind::as_str);
    let mut table = format!("| capability | `{local}` | `{webdriver}` |\n| --- | --- | --- |\n");
    for capability in Capability::ALL {
        let [local, webdriver] = engines.each_ref().map(|engine| cell(engine.support(capability)));
        // A `String` takes every text.
        let _ = writeln!(table, "| {} (`{}`) | {local} | {webdriver} |", capability.title(), capability.as_str());
    }
    table
}

fn cell(support: &Support) -> String {
    match support {
        Support::Full => "yes".to_owned(),
        Support::Partial(note) => format!("partly: {note}"),
        Support::None(why) => format!("no: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_every_capability() {
        let table = table();
        assert_eq!(table.lines().count(), Capability::ALL.len() + 2);
        assert!(table.contains("| WebDriver BiDi (`bidi`) | yes | yes |"), "{table}");
        assert!(table.contains("| processes (`processes`) | yes | no: nothing runs beside the browser |"), "{table}");
    }
}
