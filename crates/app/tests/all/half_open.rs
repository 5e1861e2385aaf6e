//! Clients that are gone without a word.

use std::time::{Duration, Instant};

use serde_json::json;

use super::host::metric;
use super::internet::{OURS, within};
use super::support::{Cdp, Options, Server, until};

#[test]
fn i7_a_client_whose_cable_is_pulled_is_let_go_and_its_session_goes_on() -> anyhow::Result<()> {
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
