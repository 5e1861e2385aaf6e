//! The browsers of a pool on all nodes.

use std::collections::BTreeMap;

use casement_domain::node::{Node, NodeState};
use casement_domain::pool::{IdleBrowser, NodeBrowsers, Observed};
use casement_domain::{BrowserId, NodeId, PoolId, ProfileVersionId};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::Column;
use crate::error::CallError;
use crate::schema::{browser_pools, browsers, nodes, profiles};

/// The capacity of a node of the version before, which does not say it.
const UNKNOWN_CAPACITY: u32 = 50;

/// The state of a browser that has not ended.
type BrowserColumns =
    (Column<BrowserId>, Column<NodeId>, String, OffsetDateTime, Option<Column<ProfileVersionId>>, i64);

pub(super) async fn observe(
    connection: &mut AsyncPgConnection,
    id: PoolId,
    own: NodeId,
) -> Result<Observed, CallError> {
    let rows = browsers::table.filter(browsers::pool_id.eq(Column(id)));
    let rows = rows.filter(browsers::state.ne("ending"));
    let columns = (
        browsers::id,
        browsers::node_id,
        browsers::state,
        browsers::created_at,
        browsers::profile_version_id,
        browsers::generation,
    );
    let rows: Vec<BrowserColumns> = rows.select(columns).load(connection).await?;
    let followed = followed_version(connection, id).await?;
    let generation = browser_pools::table.find(Column(id)).select(browser_pools::generation);
    let generation: Option<i64> = generation.get_result(connection).await.optional()?;
    let mut capacities = capacities(connection, own).await?;
    let capacity = capacities.remove(&own);
    let mut observed =
        Observed { takes_none: capacity.is_none(), capacity: capacity.unwrap_or_default(), ..Observed::default() };
    let none = |node, capacity| NodeBrowsers { node, capacity, warming: 0, idle: 0, leased: 0 };
    let mut others: BTreeMap<NodeId, NodeBrowsers> =
        capacities.into_iter().map(|(node, capacity)| (node, none(node, Some(capacity)))).collect();
    for (browser, Column(node), state, created_at, version, of) in rows {
        if node != own {
            let other = others.entry(node).or_insert_with(|| none(node, None));
            match state.as_str() {
                "warming" => other.warming += 1,
                "leased" => other.leased += 1,
                _ => other.idle += 1,
            }
            continue;
        }
        match state.as_str() {
            "warming" => observed.warming += 1,
            "leased" => observed.leased += 1,
            _ => {
                let outdated = followed.is_some_and(|current| current != version) || generation != Some(of);
                observed.idle.push(IdleBrowser { id: browser.0, created_at, outdated });
            }
        }
    }
    observed.others = others.into_values().collect();
    Ok(observed)
}

/// The capacities of the nodes that take browsers.
async fn capacities(connection: &mut AsyncPgConnection, own: NodeId) -> Result<BTreeMap<NodeId, u32>, CallError> {
    let seconds = Node::LOST_AFTER.whole_seconds();
    let seen = sql::<Bool>(&format!("nodes.heartbeat_at > now() - interval '{seconds} seconds'"));
    let serving = nodes::table.filter(nodes::state.eq(NodeState::Serving.as_str()));
    let serving = serving.filter(nodes::id.eq(Column(own)).or(seen));
    let rows: Vec<(Column<NodeId>, Option<Column<u32>>)> =
        serving.select((nodes::id, nodes::max_sessions)).load(connection).await?;
    let capacity = |(Column(node), capacity): (Column<NodeId>, Option<Column<u32>>)| {
        let capacity = capacity.map_or(UNKNOWN_CAPACITY, |capacity| capacity.0);
        (capacity > 0).then_some((node, capacity))
    };
    Ok(rows.into_iter().filter_map(capacity).collect())
}

/// The profile version that idle browsers of the pool should have, if the pool follows its profile.
async fn followed_version(
    connection: &mut AsyncPgConnection,
    pool: PoolId,
) -> Result<Option<Option<Column<ProfileVersionId>>>, CallError> {
    let pool = browser_pools::table.find(Column(pool)).filter(browser_pools::refresh_on_profile_update);
    let profile = profiles::table.filter(profiles::id.nullable().eq_any(pool.select(browser_pools::profile_id)));
    Ok(profile.select(profiles::version_id).get_result(connection).await.optional()?)
}
