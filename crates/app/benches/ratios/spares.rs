//! Measures the creation of sessions with a spare.

use std::time::{Duration, Instant};

use casement_test_support::program::{Options, Server, until};

use crate::client::{Client, first_answer};
use crate::commits::Commits;
use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Row, Table, ms};

/// The number of shapes with one spare each; a taken spare is replaced at once.
const SHAPES: usize = 2;
const ROUNDS: usize = 30;
const COMMITS: usize = 20;
/// The timeout until the spares are complete. They are started sequentially.
const FILL_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let variables = vec![("CASEMENT_LOG".to_owned(), "info,casement::jobs::spares=debug".to_owned())];
    let server = Server::start(Options { spares: 1, variables, ..Options::default() })?;
    let commits = Commits::beside(&server)?;
    let (mut commit, mut create, mut first) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..ROUNDS {
        let ready = || server.log().matches("a spare browser is ready").count();
        until("a full reserve", FILL_TIMEOUT, || (ready() >= SHAPES + round).then_some(()))?;
        quiet();
        commit.extend(&commits.run(COMMITS)?);
        let mut client = Client::of(&server)?;
        let began = Instant::now();
        let session = client.create()?;
        create.add(began.elapsed());
        first_answer(&session)?;
        first.add(began.elapsed());
        client.delete(&session)?;
    }
    let floor = |value: f64| format!("a durable commit, {}", ms(value));
    let what = format!("create headless from the reserve, p50 of {}", create.count());
    table.add(Row::new(what, ms(create.p50())).against(floor(commit.p50()), create.p50() / commit.p50()));
    table.add(Row::new("the same, p99", ms(create.p99())).against(floor(commit.p99()), create.p99() / commit.p99()));
    let what = "create from the reserve, connect, first answer of the page, p50";
    table.add(Row::new(what, ms(first.p50())).against(floor(commit.p50()), first.p50() / commit.p50()));
    Ok(())
}
