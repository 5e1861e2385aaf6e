//! Tests of several nodes under load while one of them, or what they share, fails.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use casement_test_support::program::http::Request;
use casement_test_support::program::{
    Caused, Cdp, Cluster, ClusterOptions, Fault, Load, Numbers, Report, Server, until,
};
use serde_json::json;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const CALLERS: usize = 20;
const POOL: &str = "shared";
/// The size of the pool, two browsers for each node.
const SIZE: u64 = 6;
/// The time of the load before a fault, and the time of a fault.
const BEFORE: Duration = Duration::from_secs(20);
const FAULT: Duration = Duration::from_secs(60);
/// The sessions without a pool on a node that is killed.
const HELD: usize = 2;
/// The time in which the sessions of a lost node end: 45 s without a heartbeat, and the interval of the check.
const LOST_WITHIN: Duration = Duration::from_secs(60);
/// The least number of leases that show that the service works.
pub(super) const SOME: usize = 10;

/// Starts nodes with a program, or the built one, and callers that use them.
pub(super) fn loaded(program: Option<&Path>) -> anyhow::Result<(Cluster, Load)> {
    let cluster = with_pool(program)?;
    let load = Load::start(&cluster, POOL, CALLERS);
    Ok((cluster, load))
}

/// Starts nodes, and callers at each of them.
fn loaded_at_nodes() -> anyhow::Result<(Cluster, Load)> {
    let cluster = with_pool(None)?;
    let load = Load::at_nodes(&cluster, POOL, CALLERS);
    Ok((cluster, load))
}

fn with_pool(program: Option<&Path>) -> anyhow::Result<Cluster> {
    let cluster = Cluster::start(ClusterOptions { program, ..ClusterOptions::default() })?;
    cluster.log_queues()?;
    let pool = json!({ "name": POOL, "size": SIZE, "headless": true });
    cluster.send("POST", "/browser_pools", Some(&pool))?.expect(201)?;
    cluster.nodes()[0].until_available(POOL, SIZE)?;
    Ok(cluster)
}

pub(super) fn until_leased(load: &Load, more: usize) -> anyhow::Result<()> {
    let before = load.so_far().released();
    until("the load goes on", 5 * TEST_TIMEOUT, || (load.so_far().released() >= before + more).then_some(()))
}

/// Ends the load, and checks what must hold after any fault.
pub(super) fn assert_consistent(cluster: &mut Cluster, load: Load, what: &str) -> anyhow::Result<Report> {
    cluster.heal()?;
    until_leased(&load, SOME)?;
    let report = load.finish()?;
    eprintln!("{what}: {report}");
    let violations = cluster.violations(&report)?;
    let order = cluster.queue_order()?;
    eprintln!("{what}: {order}");
    ensure!(violations.is_empty(), "{what}:\n  {}", violations.join("\n  "));
    ensure!(order.compared > 0, "no caller waited");
    Ok(report)
}

/// Compares the service before and after a fault of one node: the living nodes go on within seconds, and not only when the
/// node is lost. A machine that is busy starts few browsers a second, so the time without an acquire is compared with that
/// before the fault.
fn assert_goes_on(load: &Load, began: Instant, fault: Instant, what: &str) -> anyhow::Result<()> {
    let report = load.so_far();
    let (before, after) = (report.service(began, fault), report.service(fault, Instant::now()));
    eprintln!("{what}: before {before}; after {after}");
    let bound = Duration::from_secs(3) + 3 * before.longest_gap;
    ensure!(after.longest_gap < bound, "{what}: before {before}; after {after}");
    Ok(())
}

#[test]
fn a_node_killed_under_load_costs_only_its_own_sessions() -> anyhow::Result<()> {
    let (mut cluster, load) = loaded_at_nodes()?;
    until_leased(&load, SOME)?;
    let began = Instant::now();
    thread::sleep(BEFORE);
    let id = cluster.node_id(1)?;
    let held = (0..HELD).map(|_| cluster.nodes()[1].headless()).collect::<anyhow::Result<Vec<_>>>()?;
    let elsewhere = cluster.nodes()[2].headless()?;

    cluster.cause(Fault::Kill(1))?;
    let killed = Instant::now();

    let open = format!("select count(*) from sessions where node_id = '{id}' and state <> 'ended'");
    until("the sessions of the dead node have ended", LOST_WITHIN, || {
        cluster.sql(&open).ok().filter(|count| count == "0")
    })?;
    let lost_after = killed.elapsed();
    let ends = format!("select count(*) from sessions where node_id = '{id}' and end_reason = 'node_lost'");
    let lost: usize = cluster.sql(&ends)?.parse()?;
    eprintln!("{lost} sessions ended as node_lost within {lost_after:?}");
    assert!(lost >= HELD, "only {lost} sessions");
    for session in &held {
        assert!(Cdp::connect(session.text("cdp_ws_url")).is_err(), "a browser of the dead node serves");
    }
    assert_eq!(cluster.nodes()[0].get(&format!("/browsers/{}", elsewhere.id()))?.status, 200);
    until_leased(&load, SOME)?;
    thread::sleep(FAULT.saturating_sub(killed.elapsed()));
    assert_goes_on(&load, began, killed, "killed")?;
    cluster.undo(Fault::Kill(1))?;
    let report = assert_consistent(&mut cluster, load, "killed")?;
    assert!(report.longest < Duration::from_secs(60), "a caller was lost: {:?}", report.longest);
    Ok(())
}

/// The number of calls that wait for a stopped node: enough for connections of each worker.
const HELD_CALLS: u32 = 8;

#[test]
fn a_node_that_was_stopped_for_a_minute_ends_what_it_lost() -> anyhow::Result<()> {
    let (mut cluster, load) = loaded_at_nodes()?;
    until_leased(&load, SOME)?;
    let began = Instant::now();
    thread::sleep(BEFORE);
    let session = cluster.nodes()[1].headless()?;
    let (owner, stranger) = (cluster.owner(&session)?, cluster.strangers(&session)?[0]);
    let path = format!("/browsers/{}", session.id());
    let (address, key) = (cluster.nodes()[stranger].address(), cluster.nodes()[stranger].key().to_owned());
    let screenshot_path = format!("{path}/computer/screenshot");
    let screenshot = move || Request::new("POST", &screenshot_path).bearer(&key).json(&json!({})).send(address);
    let several = || -> Vec<_> { (0..HELD_CALLS).map(|_| thread::spawn(screenshot.clone())).collect() };
    // The later calls take the connections that these leave open, and so reach the stopped node.
    for call in several() {
        call.join().unwrap()?.expect(200)?;
    }

    cluster.cause(Fault::Pause(owner))?;
    let stopped = Instant::now();
    let waiting = several();
    until("its session has ended", LOST_WITHIN, || {
        (cluster.nodes()[stranger].get(&path).ok()?.status == 404).then_some(())
    })?;
    let mut lost = 0;
    for call in waiting {
        let answer = call.join().unwrap()?;
        // A call that opens a connection has done nothing; one that was sent learns of the loss.
        ensure!([404, 503].contains(&answer.status), "a call to the stopped node: {}", answer.text());
        lost += u32::from(answer.status == 404 && answer.text().contains("node_lost"));
    }
    assert!(lost > 0, "no call learned of the loss");
    assert_goes_on(&load, began, stopped, "stopped")?;
    cluster.undo(Fault::Pause(owner))?;

    until("the node knows that its session has ended", TEST_TIMEOUT, || {
        (cluster.nodes()[owner].get(&path).ok()?.status == 404).then_some(())
    })?;
    assert_consistent(&mut cluster, load, "stopped").map(drop)
}

#[test]
fn a_node_without_its_cable_for_a_minute_comes_back() -> anyhow::Result<()> {
    let (mut cluster, load) = loaded(None)?;
    cluster.cause(Fault::Unplug(2))?;
    thread::sleep(FAULT);
    until_leased(&load, SOME)?;
    cluster.undo(Fault::Unplug(2))?;
    assert_consistent(&mut cluster, load, "unplugged").map(drop)
}

#[test]
fn a_node_drained_under_load_ends_no_session() -> anyhow::Result<()> {
    let (mut cluster, load) = loaded(None)?;
    until_leased(&load, SOME)?;

    let drained = cluster.nodes()[1].command(&["drain", "--wait", "--deadline", "120"]).status()?;

    assert!(drained.success(), "{drained}");
    let open = format!("select count(*) from sessions where node_id = '{}' and state <> 'ended'", cluster.node_id(1)?);
    assert_eq!(cluster.sql(&open)?, "0");
    until_leased(&load, SOME)?;
    assert_eq!(cluster.sql(&open)?, "0", "it takes no session");
    cluster.node(1).stop()?;
    cluster.node(1).restart()?;
    assert_consistent(&mut cluster, load, "drained")?;
    let ended = "select count(*) from sessions where end_reason in ('node_drained', 'node_lost')";
    assert_eq!(cluster.sql(ended)?, "0", "every session was released by its caller");
    Ok(())
}

#[test]
fn a_minute_without_database_loses_no_node_and_no_session() -> anyhow::Result<()> {
    let (mut cluster, load) = loaded(None)?;
    let session = cluster.nodes()[1].headless()?;
    cluster.cause(Fault::NoDatabase)?;
    thread::sleep(FAULT);
    for node in cluster.nodes() {
        let alive = Request::new("GET", "/healthz").send(node.address())?;
        assert_eq!(alive.status, 200, "a node that has no database lives");
    }
    cluster.undo(Fault::NoDatabase)?;
    let path = format!("/browsers/{}", session.id());
    until("the nodes have it again", TEST_TIMEOUT, || {
        (cluster.nodes()[0].get(&path).ok()?.status == 200).then_some(())
    })?;
    assert_consistent(&mut cluster, load, "without database")?;
    assert_eq!(cluster.sql("select count(*) from sessions where end_reason = 'node_lost'")?, "0");
    assert_eq!(cluster.nodes()[0].get(&path)?.status, 200, "its session goes on");
    Ok(())
}

/// The minutes of random faults, and the seed; variables override both.
const MINUTES: u64 = 3;
const SEED: u64 = 21;

/// Prints what the callers of each node got before, during and after a fault.
fn print_service(report: &Report, addresses: &[SocketAddr], all: Instant, caused: Caused) {
    let Caused { fault, quiet_since, began, undone, quiet_until } = caused;
    let (at, lasted) = ((began - all).as_secs(), (undone - began).as_secs());
    eprintln!("{at:>5} s: {fault} for {lasted} s");
    for (number, address) in addresses.iter().enumerate() {
        let of_node = |from, to| report.service_at(|other| other == *address, from, to);
        let (before, during, after) =
            (of_node(quiet_since, began), of_node(began, undone), of_node(undone, quiet_until));
        let mark = if fault.node() == Some(number) { " (it)" } else { "" };
        eprintln!("         node {number}{mark}: before {before}; during {during}; after {after}");
    }
}

#[test]
fn random_faults_leave_everything_consistent() -> anyhow::Result<()> {
    let of_variable = |name: &str, or: u64| std::env::var(name).ok().map_or(Ok(or), |text| text.parse());
    let minutes = of_variable("CASEMENT_TEST_CHAOS_MINUTES", MINUTES)?;
    let seed = of_variable("CASEMENT_TEST_CHAOS_SEED", SEED)?;
    eprintln!("{minutes} minutes of random faults with the seed {seed}");
    let (mut cluster, load) = loaded_at_nodes()?;
    let addresses: Vec<_> = cluster.nodes().iter().map(Server::address).collect();
    let began = Instant::now();
    let print = |caused: Caused| print_service(&load.so_far(), &addresses, began, caused);
    cluster.cause_faults(Duration::from_secs(60 * minutes), &mut Numbers(seed), print)?;
    assert_consistent(&mut cluster, load, "random faults").map(drop)
}
