//! Requests about nodes.

use std::collections::BTreeMap;

use time::Duration;

use super::NodeCondition;
use crate::field::{Fields, InvalidInput, within};

/// The maximum time that a drain gives sessions, in seconds.
pub const MAX_DRAIN_SECONDS: u32 = 259_200;

/// An unchecked request to drain a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainRequest {
    /// The time in seconds after which the sessions end that have not ended by themselves, 0 to 259200. `None`: the time
    /// that the operator of the node configured, else none.
    pub deadline_seconds: Option<i64>,
}

impl DrainRequest {
    pub(super) fn parse(self) -> Result<Option<Duration>, InvalidInput> {
        let mut fields = Fields::new();
        let seconds =
            fields.take_optional("deadline_seconds", self.deadline_seconds, |n| within(n, 0, MAX_DRAIN_SECONDS));
        fields.finish()?;
        Ok(seconds.map(|seconds| Duration::seconds(seconds.into())))
    }
}

/// The filter of a list of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFilter {
    /// The condition.
    pub condition: Option<NodeCondition>,
    /// The labels, which must all match.
    pub labels: BTreeMap<String, String>,
}
