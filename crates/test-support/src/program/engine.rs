//! The switch with which the tests of one server run with the browsers of a Selenium Grid.
//!
//! With `CASEMENT_TEST_ENGINE=grid`, each server has no engine of its own and uses a Grid that all servers of the test program
//! share. No test knows of it.

use std::sync::OnceLock;

use super::grid::{Grid, GridOptions};
use super::options::Options;

const ENGINE: &str = "CASEMENT_TEST_ENGINE";
/// The flag that names a Grid; a test that gives it has a Grid of its own.
const GRID_URL: &str = "--grid-url";
/// The sessions of each node: several tests run at the same time, some with many browsers.
const MAX_SESSIONS_PER_NODE: u32 = 20;

/// Returns the same options, with the engine of the switch.
pub(super) fn chosen(mut options: Options) -> anyhow::Result<Options> {
    let is_wanted = std::env::var(ENGINE).is_ok_and(|engine| engine == "grid");
    // A program of another version does not know the flags.
    let names_one = options.flags.iter().any(|flag| flag.starts_with(GRID_URL)) || options.program.is_some();
    if is_wanted && !names_one {
        options.flags.extend([GRID_URL.to_owned(), shared()?.url(), "--no-local-engine".to_owned()]);
    }
    Ok(options)
}

/// Returns the Grid of the test program. Its watchdog ends it when the test program ends.
fn shared() -> anyhow::Result<&'static Grid> {
    static SHARED: OnceLock<Result<Grid, String>> = OnceLock::new();
    let options = GridOptions { max_sessions_per_node: MAX_SESSIONS_PER_NODE, ..GridOptions::default() };
    let grid = SHARED.get_or_init(|| Grid::start(options).map_err(|error| format!("{error:#}")));
    grid.as_ref().map_err(|error| anyhow::anyhow!("the Grid of the tests does not start: {error}"))
}
