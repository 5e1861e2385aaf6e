//! Runs the example `embed`.

use pretty_assertions::assert_eq;

#[expect(dead_code, reason = "its main is for cargo run")]
#[path = "../examples/embed.rs"]
mod example;

#[tokio::test]
async fn the_example_leases_and_cleans_up() {
    let log = example::run().await.expect("it runs");
    let expected = "\
a headless browser started
session demo is active
once more: a session named demo exists already
sessions: 1
the picture has 8 bytes
a browser ended
deleted; browsers running: 0
pool warm wants 2
a headful browser started
a headful browser started
two callers have a browser each
the third waits
a browser ended
the first gave its browser back
a headful browser started
the third has a browser
delete: 2 browsers of the pool are leased; release them, or delete the pool with force
a browser ended
a browser ended
deleted by force
";
    assert_eq!(log, expected.lines().collect::<Vec<_>>());
}
