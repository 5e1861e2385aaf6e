//! Tests of every state of deployments and invocations with every event; `states` prints the tables.

use casement_domain::NodeId;
use casement_domain::deployment::{BuildLease, Deployment, DeploymentEvent, DeploymentRefused, DeploymentStatus};
use casement_domain::invocation::{Invocation, InvocationEvent, InvocationRefused, InvocationStatus};
use casement_domain::testing::{NOON, deployment, invocation, node_id};
use pretty_assertions::assert_eq;
use time::{Duration, OffsetDateTime};

use crate::support::nth;

const LATER: OffsetDateTime = NOON.saturating_add(Duration::MINUTE);

fn other_node() -> NodeId {
    NodeId::from_ulid(nth(77))
}

/// Returns a lease of `node` that expires at `until`.
fn lease(node: NodeId, number: u32, until: OffsetDateTime) -> BuildLease {
    BuildLease { node, number, expires_at: until }
}

fn deployment_in(status: DeploymentStatus) -> Deployment {
    let held = lease(other_node(), 1, LATER + Duration::SECOND);
    let taken = status != DeploymentStatus::Queued;
    Deployment {
        status,
        lease: taken.then_some(held),
        begun_at: taken.then_some(NOON),
        artifact: (status == DeploymentStatus::Running).then(|| "kept".to_owned()),
        ..deployment(1)
    }
}

fn deployment_events() -> [DeploymentEvent; 6] {
    [
        DeploymentEvent::Take(lease(node_id(), 2, LATER + Duration::MINUTE)),
        DeploymentEvent::Built { checksum: "cd".repeat(32), artifact: "kept".to_owned() },
        DeploymentEvent::BuildFailed("no".to_owned()),
        DeploymentEvent::ProcessesFailed("down".to_owned()),
        DeploymentEvent::Stop,
        DeploymentEvent::Replaced(deployment(2).id),
    ]
}

/// The documented transitions; the columns are `DeploymentStatus::ALL`. The next test covers expired leases.
fn deployment_row(event: &DeploymentEvent) -> [Option<DeploymentStatus>; 5] {
    use DeploymentStatus::{Failed, InProgress, Running, Stopped};
    match event {
        DeploymentEvent::Take(_) => [Some(InProgress), None, None, None, None],
        DeploymentEvent::Built { .. } => [None, Some(Running), None, None, None],
        DeploymentEvent::BuildFailed(_) => [Some(Failed), Some(Failed), None, None, None],
        DeploymentEvent::ProcessesFailed(_) => [None, None, Some(Failed), None, None],
        DeploymentEvent::Stop => [Some(Stopped), Some(Stopped), Some(Stopped), None, None],
        DeploymentEvent::Replaced(_) => [None, None, Some(Stopped), None, None],
    }
}

#[test]
fn a_deployment_moves_as_its_table_says_and_not_otherwise() {
    for event in deployment_events() {
        for (status, cell) in DeploymentStatus::ALL.into_iter().zip(deployment_row(&event)) {
            let before = deployment_in(status);
            let moved = before.on(&event, LATER);
            let Some(to) = cell else {
                let refused = DeploymentRefused { id: before.id, status, event: event.name() };
                assert_eq!(moved, Err(refused), "{} + {}", status.as_str(), event.name());
                continue;
            };
            let mut expected = Deployment { status: to, updated_at: LATER, ..before.clone() };
            match &event {
                DeploymentEvent::Take(lease) => (expected.lease, expected.begun_at) = (Some(*lease), Some(LATER)),
                DeploymentEvent::Built { checksum, artifact } => {
                    (expected.source_checksum, expected.artifact) = (Some(checksum.clone()), Some(artifact.clone()));
                }
                DeploymentEvent::BuildFailed(why) | DeploymentEvent::ProcessesFailed(why) => {
                    expected.status_reason = Some(why.clone());
                }
                DeploymentEvent::Stop => expected.status_reason = Some("stopped by request".to_owned()),
                DeploymentEvent::Replaced(by) => {
                    expected.status_reason = Some(format!("replaced by deployment {by}"));
                }
            }
            assert_eq!(moved, Ok(expected), "{} + {}", status.as_str(), event.name());
        }
    }
}

#[test]
fn a_build_is_taken_over_once_its_lease_is_over_or_by_the_node_that_holds_it() {
    let before = deployment_in(DeploymentStatus::InProgress);
    let take = |node, at: OffsetDateTime| before.on(&DeploymentEvent::Take(lease(node, 2, at + Duration::MINUTE)), at);
    assert!(take(node_id(), LATER).is_err(), "another node holds it");
    let over = take(node_id(), LATER + Duration::SECOND).expect("its lease is over");
    assert_eq!(over.lease.map(|lease| (lease.node, lease.number)), Some((node_id(), 2)));
    assert_eq!((over.status, over.begun_at), (DeploymentStatus::InProgress, before.begun_at), "its time goes on");
    assert!(take(other_node(), LATER).is_ok(), "the node has begun a new life");
}

#[test]
fn a_reason_is_cut_and_holds_nothing_that_no_store_takes() {
    let event = DeploymentEvent::BuildFailed(format!("  a\0{}", "ä".repeat(2000)));
    let failed = deployment_in(DeploymentStatus::InProgress).on(&event, LATER).expect("failed");
    let reason = failed.status_reason.expect("a reason");
    assert_eq!(reason.chars().count(), 1000);
    assert!(reason.starts_with("a\u{fffd}ä"));
}

fn invocation_in(status: InvocationStatus) -> Invocation {
    Invocation {
        status,
        node: (status != InvocationStatus::Queued).then(other_node),
        finished_at: status.is_final().then_some(NOON),
        ..invocation(1)
    }
}

fn invocation_events() -> [InvocationEvent; 10] {
    let output = Some("1".to_owned());
    [
        InvocationEvent::Take(node_id()),
        InvocationEvent::Returned(output.clone()),
        InvocationEvent::Broke("ValueError: no".to_owned()),
        InvocationEvent::TimedOut,
        InvocationEvent::DeploymentStopped,
        InvocationEvent::DeploymentFailed,
        InvocationEvent::Cancel(output.clone()),
        InvocationEvent::Finish(output),
        InvocationEvent::Requeue,
        InvocationEvent::Lost,
    ]
}

/// The documented transitions; the columns are `InvocationStatus::ALL`.
fn invocation_row(event: &InvocationEvent) -> [Option<InvocationStatus>; 4] {
    use InvocationStatus::{Failed, Queued, Running, Succeeded};
    match event {
        InvocationEvent::Take(_) => [Some(Running), None, None, None],
        InvocationEvent::Returned(_) => [None, Some(Succeeded), None, None],
        InvocationEvent::Requeue => [None, Some(Queued), None, None],
        InvocationEvent::Broke(_) | InvocationEvent::Lost => [None, Some(Failed), None, None],
        InvocationEvent::TimedOut
        | InvocationEvent::DeploymentStopped
        | InvocationEvent::DeploymentFailed
        | InvocationEvent::Cancel(_) => [Some(Failed), Some(Failed), None, None],
        InvocationEvent::Finish(_) => [Some(Succeeded), Some(Succeeded), None, None],
    }
}

#[test]
fn an_invocation_moves_as_its_table_says_and_not_otherwise() {
    for event in invocation_events() {
        let (reason, output) = match &event {
            InvocationEvent::Take(_) | InvocationEvent::Requeue => (None, None),
            InvocationEvent::Returned(output) | InvocationEvent::Finish(output) => (None, output.clone()),
            InvocationEvent::Broke(why) => (Some(why.as_str()), None),
            InvocationEvent::TimedOut => (Some("timed out after 900 s"), None),
            InvocationEvent::DeploymentStopped => (Some("deployment stopped"), None),
            InvocationEvent::DeploymentFailed => (Some("deployment failed"), None),
            InvocationEvent::Cancel(output) => (Some("canceled"), output.clone()),
            InvocationEvent::Lost => (Some("the node that ran it was lost"), None),
        };
        for (status, cell) in InvocationStatus::ALL.into_iter().zip(invocation_row(&event)) {
            let before = invocation_in(status);
            let moved = before.on(&event, LATER);
            let expected = match cell {
                None => Err(InvocationRefused { id: before.id, status, event: event.name() }),
                Some(InvocationStatus::Queued) => {
                    Ok(Invocation { status: InvocationStatus::Queued, node: None, ..before.clone() })
                }
                Some(InvocationStatus::Running) => {
                    Ok(Invocation { status: InvocationStatus::Running, node: Some(node_id()), ..before.clone() })
                }
                Some(to) => Ok(Invocation {
                    status: to,
                    status_reason: reason.map(str::to_owned),
                    output: output.clone(),
                    finished_at: Some(LATER),
                    ..before.clone()
                }),
            };
            assert_eq!(moved, expected, "{} + {}", status.as_str(), event.name());
        }
    }
}

/// A section of the page: the heading, the columns and rows of the table, and the text below it.
pub(crate) type Section = (&'static str, Vec<&'static str>, Vec<Vec<String>>, &'static str);

pub(crate) fn tables() -> [Section; 2] {
    fn row<S>(event: &str, cells: impl IntoIterator<Item = Option<S>>, text: fn(S) -> &'static str) -> Vec<String> {
        let cells = cells.into_iter().map(|cell| cell.map_or("–", text).to_owned());
        std::iter::once(event.to_owned()).chain(cells).collect()
    }
    let deployments = deployment_events();
    let invocations = invocation_events();
    [
        (
            "Deployment",
            [&["event"][..], &DeploymentStatus::ALL.map(DeploymentStatus::as_str)].concat(),
            deployments.iter().map(|one| row(one.name(), deployment_row(one), DeploymentStatus::as_str)).collect(),
            include_str!("states_deployment.md"),
        ),
        (
            "Invocation",
            [&["event"][..], &InvocationStatus::ALL.map(InvocationStatus::as_str)].concat(),
            invocations.iter().map(|one| row(one.name(), invocation_row(one), InvocationStatus::as_str)).collect(),
            include_str!("states_invocation.md"),
        ),
    ]
}
