//! The example of a team that embeds the domain, run.

use pretty_assertions::assert_eq;

#[expect(dead_code, reason = "its main is for cargo run")]
#[path = "../../examples/embed/main.rs"]
mod example;

#[tokio::test]
async fn the_example_leases_and_clears_away_on_ports_of_its_own() {
    let said = example::run().await.expect("it runs");
    let expected = "\
a headless browser started
session demo is active
once more: a session named demo exists already
sessions: 1
the picture has 8 bytes
a browser ended
deleted; browsers running: 0
pool warm wishes for 2
a headful browser started
a headful browser started
two callers have a browser each
the third waits in line
a browser ended
the first gave its browser back
a headful browser started
it was the third one's turn
delete: 2 browsers of the pool are leased; release them, or delete the pool with force
a browser ended
a browser ended
deleted by force
";
    assert_eq!(said, expected.lines().collect::<Vec<_>>());
}
