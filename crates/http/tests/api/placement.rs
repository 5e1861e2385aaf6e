//! On which of several nodes a new session is made.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use casement_domain::{
    NodeId, SessionId,
    browser::Started,
    clock::MonotonicClock as _,
    node::{Epoch, Heartbeat, MockNodeRooms, NodeRoom, NodeState, OwnState},
    organization::{Limit, LimitExceeded},
    session::{Created, IdOrName, Session, SessionState},
    store_error::Replaced,
    testing::{FixedClock, node_id, session},
};
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{
    cluster::{Two, entrance_id},
    connect::{echoes, key, made, refused, socket},
    sockets::Echo,
    support::{Ports, Reply, TestApi},
    webdriver::Driver,
};

/// The most sessions of each node.
const PLACES: u32 = 10;

fn room(node: NodeId, used: u32) -> NodeRoom {
    let places = Some(PLACES);
    NodeRoom { node, is_serving: true, is_reachable: true, places, limits_sessions: true, used }
}

/// Returns the rooms of the entrance and the other node, with these numbers of used places at each look; the last numbers
/// stay.
fn rooms(looks: &'static [(u32, u32)]) -> Option<Box<MockNodeRooms>> {
    let (mut rooms, next) = (MockNodeRooms::new(), AtomicUsize::new(0));
    rooms.expect_rooms().returning(move |_| {
        let look = next.fetch_add(1, Ordering::SeqCst).min(looks.len() - 1);
        let (here, other) = looks[look];
        Ok(vec![room(entrance_id(), here), room(node_id(), other)])
    });
    Some(Box::new(rooms))
}

/// Returns the rooms of a node that is alone.
fn alone() -> Option<Box<MockNodeRooms>> {
    let mut rooms = MockNodeRooms::new();
    rooms.expect_rooms().returning(|_| Ok(vec![room(node_id(), PLACES)]));
    Some(Box::new(rooms))
}

const THE_OTHER_HAS_ROOM: &[(u32, u32)] = &[(PLACES, 3)];
const FULL: &[(u32, u32)] = &[(PLACES, PLACES)];

/// Returns the ports of a node that finds all sessions of the other node, and makes none.
fn finding() -> Ports {
    let mut ports = Ports::default();
    let found = |id: SessionId| Session { id, ..session(1) };
    ports.sessions.expect_find().returning(move |id| Ok(Some(found(id))));
    ports.sessions.expect_find_in_project().returning(move |_, which, _| {
        let IdOrName::Id(id) = which else { return Ok(None) };
        Ok(Some(found(*id)))
    });
    ports
}

fn entrance(looks: &'static [(u32, u32)]) -> Ports {
    Ports { rooms: rooms(looks), ..finding() }
}

/// The nodes of the sessions that a node tried to store.
type Stored = Arc<parking_lot::Mutex<Vec<NodeId>>>;

/// Lets a node make sessions, after it has refused one for each of `refusals`.
fn making(mut ports: Ports, refusals: impl IntoIterator<Item = Limit>) -> (Ports, Stored) {
    let noted = Stored::default();
    let mut refusals: Vec<Limit> = refusals.into_iter().collect();
    refusals.reverse();
    let note = noted.clone();
    ports.spares.expect_take().returning(|_| None);
    ports.sessions.expect_create().returning(move |_, session, _| {
        note.lock().push(session.node);
        Ok(refusals.pop().map_or(Created::Yes, |limit| Created::LimitExceeded(exceeded(limit))))
    });
    ports.sessions.expect_activate().returning(|_, next, _| {
        assert_eq!(next.state, SessionState::Active);
        Ok(Replaced::Yes)
    });
    ports.engine.expect_start().returning(|_| Ok(Started::default()));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    (ports, noted)
}

fn exceeded(limit: Limit) -> LimitExceeded {
    LimitExceeded { limit, value: PLACES, used: PLACES, requested: 1 }
}

fn other(refusals: impl IntoIterator<Item = Limit>) -> (Ports, Stored) {
    making(finding(), refusals)
}

async fn new_webdriver_session(api: &TestApi) -> Reply {
    api.post("/wd/hub/session", json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome" } } })).await
}

fn connect_path() -> String {
    format!("/connect?token={}", key())
}

fn message(reply: &Reply) -> Value {
    reply.json()["message"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_at_a_full_node_is_made_by_the_other_which_owns_the_session() {
    let (mut ports, stored) = other([]);
    ports.files.expect_list().returning(|_, _| Ok(stream::iter([]).boxed()));
    let two = Two::start(entrance(THE_OTHER_HAS_ROOM), ports);
    let reply = two.entrance.post("/browsers", json!({ "name": "n" })).await;
    assert_eq!((reply.status, &reply.json()["name"]), (201, &json!("n")), "{reply}");
    assert_eq!(*stored.lock(), [node_id()]);
    let id = reply.json()["session_id"].as_str().unwrap().to_owned();
    let listed = two.entrance.get(&format!("/browsers/{id}/fs/list_files?path=/tmp")).await;
    assert_eq!(listed.status, 200, "the entrance has no files: {listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_at_a_full_node_is_one_to_a_session_of_the_other() {
    let (ports, stored) = other([]);
    let ports = Ports { session_connector: Some(Echo::start().await), ..ports };
    let two = Two::start(entrance(THE_OTHER_HAS_ROOM), ports);
    let (mut open, response) = socket(&two.entrance, &connect_path(), &[]).await.unwrap();
    echoes(&mut open).await;
    assert_eq!(*stored.lock(), [node_id()]);
    assert_eq!(two.owner.connections.count(made(&response)), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webdriver_client_at_a_full_node_has_a_session_of_the_other() {
    let (ports, stored) = other([]);
    let ports = Ports { session_connector: Some(Arc::new(Driver::start().await)), ..ports };
    let two = Two::start(entrance(THE_OTHER_HAS_ROOM), ports);
    let made = new_webdriver_session(&two.entrance).await;
    assert_eq!(made.status, 200, "{made}");
    assert_eq!(*stored.lock(), [node_id()]);
    assert!(made.json()["value"]["sessionId"].as_str().unwrap().ends_with("-abc"), "{made}");
}

/// Returns what a draining node knows of itself.
fn draining() -> OwnState {
    let clock = Arc::new(FixedClock::default());
    let own = OwnState::new(entrance_id(), Epoch(1), clock.clone());
    own.confirm(Heartbeat { state: NodeState::Draining, drain_left: None }, clock.monotonic_now());
    own
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_node_has_sessions_made_by_others_or_refuses_them() {
    let drains = |others: &'static [NodeRoom]| {
        let mut rooms = MockNodeRooms::new();
        rooms.expect_rooms().returning(move |_| {
            let own = NodeRoom { is_serving: false, ..room(entrance_id(), 0) };
            Ok([&[own], others].concat())
        });
        Ports { own: Some(draining()), rooms: Some(Box::new(rooms)), ..entrance(FULL) }
    };
    let (ports, stored) = other([]);
    let two = Two::start(drains(vec![room(node_id(), 9)].leak()), ports);
    let reply = two.entrance.post("/browsers", "{}").await;
    assert_eq!((reply.status, stored.lock().len()), (201, 1), "{reply}");
    let reply = TestApi::start(Ports { node: Some(entrance_id()), ..drains(&[]) }).post("/browsers", "{}").await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply}");
    assert_eq!(reply.code(), "unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_nodes_are_not_tried_and_the_answer_names_all_of_them() {
    let two = Two::start(entrance(FULL), Ports::default());
    let expected = "max_sessions of all nodes together is 20, 20 in use, 1 more requested";
    let created = two.entrance.post("/browsers", "{}").await;
    assert_eq!(
        (created.status, created.code(), message(&created)),
        (429, "limit_exceeded".to_owned(), json!(expected))
    );
    assert_eq!(refused(&two.entrance, &connect_path()).await, (429, "limit_exceeded".to_owned()));
    let webdriver = new_webdriver_session(&two.entrance).await;
    let value = webdriver.json()["value"].clone();
    assert_eq!(
        (webdriver.status, &value["error"], &value["message"]),
        (429, &json!("session not created"), &json!(expected))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_that_is_alone_answers_with_its_own_limit() {
    let (ports, stored) = making(Ports { rooms: alone(), ..Ports::default() }, [Limit::NodeSessions; 2]);
    let api = TestApi::start(ports);
    let first = api.post("/browsers", "{}").await;
    assert_eq!(first.status, 429, "{first}");
    let reply = api.post("/browsers", "{}").await;
    let expected = "429\nx-should-retry: false\n{\"code\":\"limit_exceeded\",\"message\":\"max_sessions of the node is 10, \
                    10 in use, 1 more requested\"}";
    assert_eq!((reply.to_string(), stored.lock().len()), (expected.to_owned(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fills_up_meanwhile_is_passed_over_and_the_call_is_recorded_once() {
    // When the other node refuses, a place has become free at the entrance.
    let looks: &[(u32, u32)] = &[(PLACES, 3), (PLACES - 1, 3)];
    for kind in ["create", "connect", "webdriver"] {
        let (here, stored_here) = making(entrance(looks), []);
        let connector: Arc<dyn casement_http::SessionConnector> =
            if kind == "webdriver" { Arc::new(Driver::start().await) } else { Echo::start().await };
        let (ports, stored_there) = other([Limit::NodeSessions]);
        let two = Two::start(Ports { session_connector: Some(connector), ..here }, ports);
        let status = match kind {
            "create" => two.entrance.post("/browsers", "{}").await.status,
            "webdriver" => new_webdriver_session(&two.entrance).await.status,
            _ => {
                let (mut open, response) = socket(&two.entrance, &connect_path(), &[]).await.unwrap();
                echoes(&mut open).await;
                response.status().as_u16()
            }
        };
        assert!(status < 300, "{kind}: {status}");
        assert_eq!((&*stored_there.lock(), &*stored_here.lock()), (&vec![node_id()], &vec![entrance_id()]), "{kind}");
        let [entrance, owner] = &two.trails;
        let records = entrance.entries().await;
        assert_eq!((records.len(), records[0].1.status, entrance.intents.lock().len()), (1, status, 1), "{kind}");
        assert_eq!((owner.entries.lock().len(), owner.intents.lock().len()), (0, 0), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entrance_that_fills_up_meanwhile_has_the_session_made_by_another_node() {
    let (here, stored_here) = making(entrance(&[(PLACES - 1, 3), (PLACES, 3)]), [Limit::NodeSessions]);
    let (ports, stored_there) = other([]);
    let two = Two::start(here, ports);
    let reply = two.entrance.post("/browsers", "{}").await;
    assert_eq!(reply.status, 201, "{reply}");
    assert_eq!((stored_here.lock().len(), stored_there.lock().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_is_tried_once_even_if_the_store_says_that_it_has_room() {
    let (here, stored_here) = making(entrance(&[(3, 3)]), [Limit::NodeSessions; 3]);
    let (ports, stored_there) = other([Limit::NodeSessions; 3]);
    let two = Two::start(here, ports);
    let reply = two.entrance.post("/browsers", "{}").await;
    let expected = json!("max_sessions of all nodes together is 20, 20 in use, 1 more requested");
    assert_eq!((reply.status, message(&reply), reply.header("casement-hop-full")), (429, expected, None));
    assert_eq!((stored_here.lock().len(), stored_there.lock().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_node_is_tried_when_the_organization_has_reached_its_limit() {
    let (here, stored_here) = making(entrance(&[(PLACES, 3), (0, 0)]), []);
    let (ports, stored_there) = other([Limit::OrganizationSessions]);
    let two = Two::start(here, ports);
    let reply = two.entrance.post("/browsers", "{}").await;
    let expected = json!("max_concurrent_sessions of the organization is 10, 10 in use, 1 more requested");
    assert_eq!((reply.status, message(&reply)), (429, expected));
    assert_eq!((stored_here.lock().len(), stored_there.lock().len()), (0, 1));
}
