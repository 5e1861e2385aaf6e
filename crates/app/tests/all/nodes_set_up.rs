//! Tests of the set-up with which other tests try several nodes: each node is on a host of its own, faults have the
//! effect that their names say, and everything is undone.

use std::time::{Duration, Instant};

use casement_test_support::program::{Cdp, Cluster, ClusterOptions, Pages, until};
use serde_json::json;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The delay of a slow link. A connection and its first answer cross the link four times.
const DELAY: Duration = Duration::from_millis(100);

#[test]
fn nodes_on_hosts_of_their_own_serve_one_organization_and_survive_each_fault() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let options = ClusterOptions { nodes: 3, pages: Some(&pages), ..ClusterOptions::default() };
    let mut cluster = Cluster::start(options)?;

    let session = cluster.nodes()[1].headless()?;
    assert_eq!((cluster.owner(&session)?, cluster.strangers(&session)?), (1, vec![0, 2]));
    let mut client = Cdp::connect(&cluster.through(1, session.text("cdp_ws_url")))?;
    let page = client.page()?;
    client.open(&page, &cluster.page("/form"))?;
    assert_eq!(client.evaluate(&page, "document.title")?, "A form");

    cluster.slow_down(1, DELAY, 0.0)?;
    let began = Instant::now();
    cluster.nodes()[1].get(&format!("/browsers/{}", session.id()))?.expect(200)?;
    assert!(began.elapsed() >= 4 * DELAY, "only {:?}", began.elapsed());
    cluster.restore_speed(1)?;

    cluster.unplug(1)?;
    let path = format!("/browsers/{}", session.id());
    cluster.nodes()[0].get(&path)?.expect(200)?;
    until("the load balancer has noticed", TEST_TIMEOUT, || {
        let answers = (0..6).map(|_| cluster.send("GET", &path, None).map(|answer| answer.status));
        answers.collect::<Result<Vec<_>, _>>().is_ok_and(|all| all == [200; 6]).then_some(())
    })?;
    cluster.plug(1)?;
    assert_eq!(client.evaluate(&page, "document.title")?, "A form", "its connections are still open");
    cluster.until_balanced(3)?;

    cluster.database().stop()?;
    until("the database is away", TEST_TIMEOUT, || (cluster.nodes()[0].get(&path).ok()?.status == 503).then_some(()))?;
    assert_eq!(client.evaluate(&page, "document.title")?, "A form");
    cluster.database().start()?;
    until("the nodes have it again", TEST_TIMEOUT, || {
        (cluster.nodes()[0].get(&path).ok()?.status == 200).then_some(())
    })?;

    cluster.node(2).kill()?;
    cluster.take_over_address_of(2)?;
    cluster.nodes()[2].get(&path)?.expect(200)?;
    let own = cluster.nodes()[2].headless()?;
    assert_eq!(cluster.owner(&own)?, 2, "it is the new node that has the address");
    Ok(())
}

#[test]
fn sessions_of_a_killed_node_end_as_lost_within_a_minute() -> anyhow::Result<()> {
    let mut cluster = Cluster::start(ClusterOptions { nodes: 2, ..ClusterOptions::default() })?;
    let session = cluster.nodes()[1].headless()?;
    let other = cluster.nodes()[0].headless()?;

    cluster.node(1).kill()?;

    let state = "select state, coalesce(end_reason, '') from sessions order by created_at";
    until("the session has ended", TEST_TIMEOUT, || cluster.sql(state).ok().filter(|rows| rows.starts_with("ended")))?;
    assert_eq!(cluster.sql(state)?, "ended|node_lost\nactive|");
    let left = cluster.nodes()[0].get(&format!("/browsers/{}", session.id()))?;
    assert_eq!(left.status, 404, "{}", left.text());
    cluster.node(1).restart()?;
    until("the node has ended what it had", TEST_TIMEOUT, || {
        let browsers = cluster.nodes()[1].processes().into_iter().filter(|process| process.is_browser());
        (browsers.count() == 0).then_some(())
    })?;
    let listed = cluster.nodes()[1].get("/browsers")?.expect(200)?.json()?;
    assert_eq!(listed[0]["session_id"], json!(other.id()));
    Ok(())
}
