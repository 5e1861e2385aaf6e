//! Tests with clients that disappear without closing their connections.

use std::time::{Duration, Instant};

use casement_test_support::program::{Cdp, Options, Server, until};
use serde_json::json;

use super::host::metric;
use super::internet::{OURS, within};

#[test]
fn a_half_open_connection_is_closed_and_its_session_continues() -> anyhow::Result<()> {
    within(|internet| {
        let server = Server::start(Options { listen: Some(OURS.into()), ..Options::default() })?;
        let session = server.headless()?;
        let url = session.text("cdp_ws_url");
        let open = || metric(&server, "casement_relays_open{channel=\"cdp\"}");
        let mut client = internet.afar(|| Cdp::connect(url))?;
        client.call("Browser.getVersion", &json!({}))?;
        assert_eq!(open()?, Some(1.0));

        internet.pull_the_cable()?;
        let pulled = Instant::now();
        until("the server lets it go", Duration::from_secs(180), || (open().ok()? == Some(0.0)).then_some(()))?;
        println!("let go after {:?}", pulled.elapsed());
        Cdp::connect(url)?.call("Browser.getVersion", &json!({})).map(drop)
    })
}
