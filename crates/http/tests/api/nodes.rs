//! The routes `/nodes`: any node shows all, and stores a drain for any other.

use std::sync::Arc;

use casement_domain::{
    Replaced,
    node::{Epoch, NodeCondition, NodeState, NodeStatus, OwnState, StateChange},
    page::Listed,
    session::{SessionState, Tags},
    testing::{FixedClock, NOON, browser_id, node_id, node_status, session, session_id},
};
use pretty_assertions::assert_eq;
use serde_json::json;
use time::Duration;

use super::support::{Key, Ports, TestApi};

fn one() -> String {
    format!("/nodes/{}", node_id())
}

fn in_state(state: NodeState) -> NodeStatus {
    let mut status = node_status();
    status.stored.state = state;
    status
}

#[tokio::test]
async fn nodes_are_listed_in_pages_for_keys_of_the_organization() {
    let mut ports = Ports::default();
    ports.nodes.expect_list().times(1).returning(|filter, page| {
        assert_eq!((page.limit, page.offset, filter.condition), (1, 3, Some(NodeCondition::Lost)));
        assert_eq!(filter.labels, [("zone".to_owned(), "a".to_owned())].into());
        let mut lost = NodeStatus { is_silent: true, ..node_status() };
        lost.stored.node.labels = Tags::parse(filter.labels.clone()).expect("labels");
        Ok(Listed { items: vec![lost], next_offset: Some(4) })
    });
    let api = TestApi::start(ports);
    let reply = api.get("/nodes?limit=1&offset=3&state=lost&labels[zone]=a").await;
    assert_eq!((reply.status, reply.header("x-next-offset")), (200, Some("4")), "{reply}");
    let expected = json!([{
        "id": node_id().to_string(), "host": "host", "state": "lost", "version": "1.2.3", "address": "127.0.0.1:8080",
        "epoch": 4, "labels": {"zone": "a"}, "max_sessions": 10, "memory_mib": 16384, "sessions": 2,
        "idle_browsers": 1, "started_at": "2026-12-01T12:00:00.000000Z", "heartbeat_at": "2026-12-01T12:00:00.000000Z",
    }]);
    assert_eq!(reply.json(), expected);
    let invalid = api.get("/nodes?state=gone").await;
    assert_eq!((invalid.status, &*invalid.code()), (400, "invalid_input"), "{invalid}");
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    for (method, path) in [("GET", "/nodes".to_owned()), ("POST", format!("{}/drain", one()))] {
        let refused = api.request(method, &path, &[&key], "").await;
        assert_eq!((refused.status, &*refused.code()), (403, "forbidden"));
    }
}

#[tokio::test]
async fn a_drain_is_stored_and_shown_with_its_end() {
    let mut ports = Ports::default();
    let mut found =
        [node_status(), NodeStatus { drain_ends_at: Some(NOON + Duration::MINUTE), ..in_state(NodeState::Draining) }]
            .into_iter();
    ports.nodes.expect_status().times(2).returning(move |_| Ok(found.next()));
    ports.nodes.expect_change_state().times(1).returning(|id, change| {
        let (from, to) = (NodeState::Serving, NodeState::Draining);
        let expected = StateChange { epoch: Epoch(4), from, to, drain: Some(Duration::MINUTE) };
        assert_eq!((id, change), (node_id(), expected));
        Ok(Replaced::Yes)
    });
    let drained = TestApi::start(ports).post(&format!("{}/drain", one()), json!({"deadline_seconds": 60})).await;
    assert_eq!(drained.status, 200, "{drained}");
    let record = drained.json();
    assert_eq!(
        (&record["state"], &record["drain_ends_at"]),
        (&json!("draining"), &json!("2026-12-01T12:01:00.000000Z"))
    );
}

#[tokio::test]
async fn a_lost_node_is_neither_drained_nor_resumed_and_an_unknown_one_is_not_found() {
    let mut ports = Ports::default();
    ports
        .nodes
        .expect_status()
        .returning(|id| Ok((id == node_id()).then(|| NodeStatus { is_silent: true, ..node_status() })));
    let api = TestApi::start(ports);
    for call in ["drain", "resume"] {
        let refused = api.post(&format!("{}/{call}", one()), json!({})).await;
        assert_eq!((refused.status, &*refused.code()), (409, "invalid_state"), "{refused}");
        assert!(refused.to_string().contains("is lost"), "{refused}");
        let unknown = api.post(&format!("/nodes/x/{call}"), json!({})).await;
        assert_eq!((unknown.status, &*unknown.code()), (404, "not_found"), "{unknown}");
    }
    let invalid = api.post(&format!("{}/drain", one()), json!({"deadline_seconds": 259_201})).await;
    assert_eq!((invalid.status, &*invalid.code()), (400, "invalid_input"), "{invalid}");
}

#[tokio::test]
async fn a_node_without_contact_to_the_store_answers_for_no_session() {
    let clock = Arc::new(FixedClock::default());
    let own = OwnState::new(node_id(), Epoch(4), clock.clone());
    let mut ports = Ports { own: Some(own), ..Ports::default() };
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.computer.expect_read_clipboard().times(1).returning(|_| Ok("text".to_owned()));
    let active = (SessionState::Active, Some(browser_id(1)));
    assert_eq!((session(1).state, session(1).browser), active);
    let api = TestApi::start(ports);
    let path = format!("/browsers/{}/computer/clipboard/read", session_id(1));
    let served = api.post(&path, json!({})).await;
    assert_eq!(served.status, 200, "{served}");
    clock.advance(Duration::seconds(40));
    let refused = api.post(&path, json!({})).await;
    assert_eq!((refused.status, &*refused.code()), (503, "unavailable"), "{refused}");
}
