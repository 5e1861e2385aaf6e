//! Measures the creation of sessions without a spare, and the time of each step.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Options, Server};

use crate::client::{Client, first_answer};
use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const TIMES: usize = 20;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    // No colours, because their codes would separate a field from its value.
    let variables = [("CASEMENT_LOG", "info,casement_chromium::start=debug"), ("NO_COLOR", "1")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let server = Server::start(Options { variables, ..Options::default() })?;
    let mut client = Client::of(&server)?;
    // The first start reads Chromium from the disk.
    let first = client.create()?;
    client.delete(&first)?;
    let (mut whole, mut answered) = (Samples::default(), Samples::default());
    for _ in 0..TIMES {
        quiet();
        let began = Instant::now();
        let session = client.create()?;
        answered.add(began.elapsed());
        first_answer(&session)?;
        whole.add(began.elapsed());
        client.delete(&session)?;
    }
    let stages = stages(&server.log(), 1 + TIMES)?;
    let target = |row: Row| row.target("< 430 ms", whole.p50(), Limit::Most(429.99));
    table.add(target(Row::new(
        format!("create headless with nothing in reserve, connect, first answer, p50 of {TIMES}"),
        ms(whole.p50()),
    )));
    let accounted: f64 = stages.iter().map(|(_, samples)| samples.p50()).sum();
    for (name, samples) in &stages {
        table.add(Row::new(format!("— of it {}", meaning(name)), ms(samples.p50())));
    }
    table.add(Row::new("— of it the request and the database", ms((answered.p50() - accounted).max(0.0))));
    table.add(Row::new("— of it connecting and the first answer", ms(whole.p50() - answered.p50())));
    Ok(())
}

fn meaning(stage: &str) -> String {
    match stage {
        "sandbox" => "making the sandbox",
        "spawn" => "starting Chromium's process",
        "devtools_port" => "until Chromium listens",
        "attach" => "attaching to the page",
        "evaluated" => "the page's proof that it answers",
        "answer" => "starting the agent, and its word to the server",
        other => other,
    }
    .to_owned()
}

/// Returns the steps of each start from the log: `stages=[("sandbox", 14), …]`. The first start is left out.
fn stages(log: &str, starts: usize) -> anyhow::Result<Vec<(String, Samples)>> {
    let lists: Vec<&str> =
        log.lines().filter_map(|line| Some(line.split_once("stages=[")?.1.split_once(']')?.0)).collect();
    ensure!(lists.len() == starts, "the log tells the stages of {} starts, not of {starts}", lists.len());
    let mut stages: Vec<(String, Samples)> = Vec::new();
    for list in &lists[1..] {
        for pair in list.split("(\"").skip(1) {
            let (name, rest) = pair.split_once("\", ").context("a stage without a time")?;
            let took: f64 = rest.split(')').next().unwrap_or_default().parse().context("a time that is none")?;
            if stages.iter().all(|(known, _)| known != name) {
                stages.push((name.to_owned(), Samples::default()));
            }
            let stage = stages.iter_mut().find(|(known, _)| known == name).context("it was put there")?;
            stage.1.add_ms(took);
        }
    }
    Ok(stages)
}
