//! Tests of every condition of a node with every event, against the table of `docs/states.md`.

use casement_domain::node::{NodeCondition, NodeEvent, NodeRefused, NodeState};
use casement_domain::testing::{node_id, node_status};
use pretty_assertions::assert_eq;

/// The documented transitions, one row per event; the columns are `NodeCondition::ALL`.
const fn row(event: NodeEvent) -> [Option<NodeState>; 4] {
    let [serving, draining, drained] = [Some(NodeState::Serving), Some(NodeState::Draining), Some(NodeState::Drained)];
    match event {
        NodeEvent::Start => [serving; 4],
        NodeEvent::Drain => [draining, draining, drained, None],
        NodeEvent::Resume => [serving, serving, serving, None],
        NodeEvent::Emptied => [None, drained, None, None],
    }
}

#[test]
fn a_node_moves_as_its_table_says_and_not_otherwise() {
    for event in NodeEvent::ALL {
        for (condition, cell) in NodeCondition::ALL.into_iter().zip(row(event)) {
            let expected = cell.ok_or(NodeRefused { id: node_id(), condition, event });
            assert_eq!(condition.on(event, node_id()), expected, "{} + {}", condition.as_str(), event.as_str());
        }
    }
}

#[test]
fn a_node_that_was_drained_before_it_fell_silent_is_not_lost() {
    for (state, is_silent, condition) in [
        (NodeState::Serving, false, NodeCondition::Serving),
        (NodeState::Draining, false, NodeCondition::Draining),
        (NodeState::Drained, false, NodeCondition::Drained),
        (NodeState::Serving, true, NodeCondition::Lost),
        (NodeState::Draining, true, NodeCondition::Lost),
        (NodeState::Drained, true, NodeCondition::Drained),
    ] {
        let mut status = node_status();
        (status.stored.state, status.is_silent) = (state, is_silent);
        assert_eq!(status.condition(), condition);
    }
}

/// Returns the columns and the rows of the table.
pub(crate) fn table() -> (Vec<&'static str>, Vec<Vec<String>>) {
    let columns = [&["event"][..], &NodeCondition::ALL.map(NodeCondition::as_str)].concat();
    let rows = NodeEvent::ALL.map(|event| {
        let cells = row(event).map(|cell| cell.map_or("–", NodeState::as_str).to_owned());
        std::iter::once(event.as_str().to_owned()).chain(cells).collect()
    });
    (columns, rows.into())
}
