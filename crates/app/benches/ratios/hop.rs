//! Measures what a call costs that reaches another node than the one with the browser, against the same call at that
//! node.

use std::net::TcpStream;
use std::time::Duration;

use casement_test_support::program::{Options, Server};

use crate::client::Client;
use crate::machine::quiet;
use crate::relay::PathClient;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const CALLS: usize = 2000;
const RUNS: usize = 9;
/// The most that a call may take, compared with the same at the owner.
const LIMIT: f64 = 1.25;

/// The same at the node with the browser, and at another one.
#[derive(Default)]
struct Both {
    owner: Samples,
    other: Samples,
}

impl Both {
    fn add_to(&self, table: &mut Table, what: &str) {
        let (owner, other) = (self.owner.p50(), self.other.p50());
        table.add(
            Row::new(format!("{what}, through another node"), ms(other))
                .against(format!("at the node with the browser, {}", ms(owner)), other / owner)
                .target(&format!("≤ ×{LIMIT}"), other / owner, Limit::Most(LIMIT)),
        );
    }
}

/// Returns the options of a node that others reach.
pub(crate) fn node() -> Options {
    let flags = ["--cluster-listen", "127.0.0.1:0", "--allowed-host", "127.0.0.1"].map(str::to_owned).to_vec();
    Options { flags, ..Options::default() }
}

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let owner = Server::start(node())?;
    let other = owner.another(node())?;
    let (mut at_owner, mut at_other) = (Client::of(&owner)?, Client::of(&other)?);
    let session = at_owner.create()?;
    let path = |server: &Server| {
        let url = session.text("cdp_ws_url");
        let url = url.replacen(&owner.address().to_string(), &server.address().to_string(), 1);
        PathClient::open(TcpStream::connect(server.address())?, &url)
    };
    let (mut near, mut far) = (path(&owner)?, path(&other)?);
    quiet();
    let mut took = Both::default();
    for _ in 0..CALLS {
        took.owner.time(|| near.ask_page())?;
        took.other.time(|| far.ask_page())?;
    }
    took.add_to(table, &format!("CDP round trip to the page, p50 of {CALLS}"));
    let (mut took, record) = (Both::default(), format!("/browsers/{}", session.id()));
    for _ in 0..CALLS {
        took.owner.time(|| at_owner.call("GET", &record, None))?.expect(200)?;
        took.other.time(|| at_other.call("GET", &record, None))?.expect(200)?;
    }
    took.add_to(table, &format!("GET /browsers/{{id}}, p50 of {CALLS}"));
    for (what, work) in [
        ("10 MB from the browser", PathClient::big_answer as fn(&mut PathClient) -> anyhow::Result<Duration>),
        ("10 MB to the browser", PathClient::big_question),
    ] {
        let mut took = Both::default();
        for _ in 0..RUNS {
            took.owner.add(work(&mut near)?);
            took.other.add(work(&mut far)?);
        }
        took.add_to(table, &format!("{what}, median of {RUNS}"));
    }
    Ok(())
}
