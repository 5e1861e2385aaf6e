//! Requests for sessions of another node.

use std::{net::TcpListener, sync::Arc};

use async_trait::async_trait;
use casement_domain::{
    NodeId, Replaced, StoreError,
    node::{
        ClusterEndpoint, Epoch, Fingerprint, Heartbeat, Node, NodeFilter, NodeRepository, NodeState, NodeStatus,
        SilentNode, StateChange, StoredNode,
    },
    page::{Listed, Page},
    session::{Session, Tags},
    testing::{NOON, node_id, session, session_id},
};
use casement_http::{Cluster, NodeIdentity, Permission};
use futures_util::{SinkExt as _, StreamExt as _, stream};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use rcgen::{CertificateParams, KeyPair};
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::{
    sockets::{Echo, check_ends_after_both_close_frames},
    support::{Key, Ports, TestApi},
};

/// The stored nodes.
#[derive(Default)]
struct Nodes(Mutex<Vec<StoredNode>>);

#[async_trait]
impl NodeRepository for Nodes {
    async fn announce(&self, _: &Node) -> Result<Epoch, StoreError> {
        unreachable!("a server does not announce itself")
    }

    async fn find(&self, id: NodeId) -> Result<Option<StoredNode>, StoreError> {
        Ok(self.0.lock().iter().find(|stored| stored.node.id == id).cloned())
    }

    async fn find_by_key(&self, key: Fingerprint) -> Result<Option<StoredNode>, StoreError> {
        let has_key = |node: &Node| node.cluster.as_ref().is_some_and(|cluster| cluster.fingerprint == key);
        Ok(self.0.lock().iter().find(|stored| has_key(&stored.node)).cloned())
    }

    async fn status(&self, _: NodeId) -> Result<Option<NodeStatus>, StoreError> {
        unreachable!("no test here reads the status of a node")
    }

    async fn list(&self, _: &NodeFilter, _: Page) -> Result<Listed<NodeStatus>, StoreError> {
        unreachable!("no test here lists nodes")
    }

    async fn heartbeat(&self, _: NodeId, _: Epoch) -> Result<Option<Heartbeat>, StoreError> {
        unreachable!("a server sends no heartbeat")
    }

    async fn change_state(&self, _: NodeId, _: StateChange) -> Result<Replaced, StoreError> {
        unreachable!("no test here drains a node")
    }

    async fn finish_drain(&self, _: NodeId, _: Epoch) -> Result<bool, StoreError> {
        unreachable!("no test here drains a node")
    }

    async fn lose(&self, _: SilentNode, _: OffsetDateTime) -> Result<Option<Vec<Session>>, StoreError> {
        unreachable!("a server looks for no lost nodes")
    }

    async fn with_remains(&self) -> Result<Vec<(NodeId, OffsetDateTime)>, StoreError> {
        unreachable!("a server looks for no lost nodes")
    }
}

impl Nodes {
    fn change(&self, id: NodeId, change: impl FnOnce(&mut StoredNode)) {
        let mut nodes = self.0.lock();
        change(nodes.iter_mut().find(|stored| stored.node.id == id).expect("a node"));
    }
}

fn identity() -> NodeIdentity {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["node".to_owned()]).unwrap().self_signed(&key).unwrap();
    NodeIdentity::new(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}

/// The node that clients reach. The other one, `node_id()`, owns the sessions.
pub(super) fn entrance_id() -> NodeId {
    NodeId::from_ulid(ulid::Ulid(99))
}

/// Two servers with one store of nodes.
pub(super) struct Two {
    pub(super) entrance: TestApi,
    pub(super) owner: TestApi,
    nodes: Arc<Nodes>,
    /// The entrance's view of the nodes.
    cluster: Cluster,
    /// The audit records of both.
    pub(super) trails: [super::support::Trail; 2],
}

impl Two {
    pub(super) fn start(entrance: Ports, owner: Ports) -> Self {
        let nodes = Arc::new(Nodes::default());
        let trails = [entrance.trail.clone(), owner.trail.clone()];
        let start = |id, ports: Ports| {
            let (listener, identity) = (TcpListener::bind("127.0.0.1:0").unwrap(), identity());
            let cluster = ClusterEndpoint {
                address: listener.local_addr().unwrap().to_string(),
                fingerprint: identity.fingerprint(),
            };
            nodes.0.lock().push(stored(id, cluster));
            let cluster = Cluster::new(id, Epoch(1), identity, nodes.clone());
            let seen = cluster.clone();
            let api = Ports { node: Some(id), cluster: Some(cluster), for_nodes: Some(listener), ..ports };
            (TestApi::start(api), seen)
        };
        let ((entrance, cluster), (owner, _)) = (start(entrance_id(), entrance), start(node_id(), owner));
        Self { entrance, owner, nodes, cluster, trails }
    }

    /// Connects to the first session, which the owner serves, at the entrance.
    async fn socket_of_first_session(&self) -> WebSocketStream<TcpStream> {
        self.owner.sessions.activity().watch(&session(1));
        let token = self.entrance.token(session_id(1), Permission::Drive);
        let url = format!("ws://casement.test/vm/{}/cdp?jwt={token}", session_id(1));
        tokio_tungstenite::client_async(url, self.entrance.connect().await).await.unwrap().0
    }
}

fn stored(id: NodeId, cluster: ClusterEndpoint) -> StoredNode {
    let node = Node {
        id,
        host: "host".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        cluster: Some(cluster),
        max_sessions: 1,
        limits_sessions: true,
        memory_mib: 1,
        labels: Tags::default(),
        version: "1".to_owned(),
        started_at: NOON,
    };
    StoredNode { node, epoch: Epoch(1), state: NodeState::Serving, heartbeat_at: NOON }
}

/// The ports of a node whose session has an empty directory.
fn owner_ports() -> Ports {
    let mut ports = Ports::of_first_session();
    ports.files.expect_list().returning(|_, _| Ok(stream::iter([]).boxed()));
    ports
}

fn listing() -> String {
    format!("/browsers/{}/fs/list_files?path=/tmp", session_id(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_session_of_another_node_is_answered_by_that_node() {
    let two = Two::start(Ports::of_first_session(), owner_ports());
    for _ in 0..3 {
        let reply = two.entrance.get(&listing()).await;
        assert_eq!(reply.status, 200, "{reply}");
    }
    let token = two.entrance.token(session_id(1), Permission::Drive);
    let path = format!("/vm/{}/fs/list_files?path=/tmp&jwt={token}", session_id(1));
    assert_eq!(two.entrance.request("GET", &path, &[], "").await.status, 200);
    let missing = two.entrance.get("/browsers/00000000000000000000000009/fs/list_files?path=/tmp").await;
    assert_eq!(missing.status, 404, "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_names_the_owner_so_that_the_entrance_reads_no_session() {
    let two = Two::start(Ports::default(), owner_ports());
    let token = two.entrance.token(session_id(1), Permission::Drive);
    let path = format!("/vm/{}/fs/list_files?path=/tmp&jwt={token}", session_id(1));
    let reply = two.entrance.request("GET", &path, &[], "").await;
    assert_eq!(reply.status, 200, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_entrance_records_a_call_and_stores_its_intent() {
    let mut owner = Ports::of_first_session();
    owner.files.expect_make_directory().returning(|_, _| Ok(()));
    let two = Two::start(Ports::of_first_session(), owner);
    let body = r#"{"path":"/tmp/a"}"#;
    let path = format!("/browsers/{}/fs/create_directory", session_id(1));
    let reply = two.entrance.call("PUT", &path, body).await;
    assert!(reply.status < 300, "{reply}");
    let [entrance, owner] = &two.trails;
    let records = entrance.entries().await;
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].1.status, records[0].1.api_key.is_some()), (reply.status, true));
    assert_eq!(entrance.intents.lock().len(), 1);
    assert_eq!((owner.entries.lock().len(), owner.intents.lock().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_reaches_the_session_and_gets_its_close_reason() {
    let owner = Ports { session_connector: Some(Echo::start().await), ..Ports::of_first_session() };
    let two = Two::start(Ports::default(), owner);
    let mut socket = two.socket_of_first_session().await;
    let long = "x".repeat(3 << 20);
    for text in ["hello", long.as_str(), "again"] {
        socket.send(Message::text(text)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
    }
    let draining = tokio::spawn(two.entrance.server.drain());
    let Some(Ok(Message::Close(Some(frame)))) = socket.next().await else { panic!("no close frame") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1012, "drain"));
    drop(socket);
    draining.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relayed_websocket_ends_when_the_run_of_its_node_is_over() {
    let owner = Ports { session_connector: Some(Echo::start().await), ..Ports::of_first_session() };
    let two = Two::start(Ports::default(), owner);
    let mut socket = two.socket_of_first_session().await;
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
    // The node is declared lost while its connections stay open, as those of a stopped machine do.
    two.nodes.change(node_id(), |stored| stored.epoch = Epoch(2));
    two.cluster.nodes_changed().await.unwrap();
    let Some(Ok(Message::Close(Some(frame)))) = socket.next().await else { panic!("no close frame") };
    assert_eq!(frame.reason.as_str(), "node_unreachable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relayed_websocket_ends_after_both_close_frames() {
    let owner = Ports { session_connector: Some(Echo::start().await), ..Ports::of_first_session() };
    let two = Two::start(Ports::default(), owner);
    two.owner.sessions.activity().watch(&session(1));
    check_ends_after_both_close_frames(&two.entrance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_between_nodes_are_not_believed_from_clients() {
    let two = Two::start(Ports::of_first_session(), owner_ports());
    let key = Key::Organization.text();
    let id = key.trim_start_matches("csk_").split('_').next().unwrap_or_default().to_lowercase();
    let forged = [format!("casement-hop-key: {id}"), format!("casement-hop-target: {}.1", node_id())];
    let forged: Vec<&str> = forged.iter().map(String::as_str).collect();
    for api in [&two.entrance, &two.owner] {
        assert_eq!(api.request("GET", &listing(), &forged, "").await.status, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_another_key_at_the_address_of_the_owner_gets_nothing() {
    let two = Two::start(Ports::of_first_session(), owner_ports());
    two.nodes.change(node_id(), |stored| {
        if let Some(cluster) = &mut stored.node.cluster {
            cluster.fingerprint = Fingerprint([1; 32]);
        }
    });
    let reply = two.entrance.get(&listing()).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_store_does_not_know_is_refused() {
    let two = Two::start(Ports::of_first_session(), owner_ports());
    two.nodes.change(entrance_id(), |stored| stored.node.cluster = None);
    let reply = two.entrance.get(&listing()).await;
    assert_eq!(reply.status, 503, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_an_earlier_run_of_a_node_is_refused_there() {
    let two = Two::start(Ports::of_first_session(), owner_ports());
    two.nodes.change(node_id(), |stored| stored.epoch = Epoch(7));
    let reply = two.entrance.get(&listing()).await;
    assert_eq!((reply.status, reply.code()), (503, "unavailable".to_owned()), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relayed_request_is_not_relayed_again() {
    let mut elsewhere = Ports::default();
    let moved = || casement_domain::session::Session { node: entrance_id(), ..session(1) };
    elsewhere.sessions.expect_find_in_project().returning(move |_, _, _| Ok(Some(moved())));
    let two = Two::start(Ports::of_first_session(), elsewhere);
    let reply = two.entrance.get(&listing()).await;
    assert_eq!((reply.status, reply.code()), (503, "unavailable".to_owned()), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_cannot_be_reached_is_unavailable() {
    let two = Two::start(Ports::of_first_session(), owner_ports());
    assert_eq!(two.entrance.get(&listing()).await.status, 200);
    two.owner.server.drain().await.unwrap();
    let reply = two.entrance.get(&listing()).await;
    assert_eq!((reply.status, reply.code()), (503, "unavailable".to_owned()), "{reply}");
}
