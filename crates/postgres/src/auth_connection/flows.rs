//! Queries of flows, inside of the caller's transaction.

use casement_domain::auth_connection::{
    CollectedCredential, Flow, FlowBegun, FlowEnd, FlowKind, FlowRequirement, OrphanedFlow, ProfileSavePermission,
};
use casement_domain::credential::{CredentialStored, CredentialUpdated};
use casement_domain::{AuthConnectionId, AuthFlowId, NodeId, SessionId};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use super::AUTH_CHANNEL;
use super::row::FlowRow;
use crate::column::{Column, Stored};
use crate::credential;
use crate::error::CallError;
use crate::heartbeat::is_alive;
use crate::notify::pg_notify;
use crate::query::{all, find, is_there};
use crate::schema::{auth_connections, auth_flows, browsers, nodes, profiles, sessions};

const RUNNING: &str = "IN_PROGRESS";
/// Locks the connections that are due for a health check, except those with a running flow or a loaded profile.
const DUE: &str = "
    SELECT c.id FROM auth_connections c
    WHERE c.health_checks AND c.status = 'AUTHENTICATED'
        AND c.check_taken_at <= $1 - make_interval(secs => c.health_check_interval_seconds)
        AND NOT EXISTS (SELECT 1 FROM auth_flows f WHERE f.connection_id = c.id AND f.status = 'IN_PROGRESS')
        AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.profile_id = c.profile_id AND s.state <> 'ended')
    ORDER BY c.check_taken_at LIMIT $2 FOR UPDATE SKIP LOCKED";
/// The maximum number of flows that one statement deletes.
pub(super) const MAX_FORGOTTEN: i64 = 20_000;
/// Deletes at most `$2` flows that ended before `$1`, except the latest login and the latest health check of each connection.
pub(super) const FORGET: &str = "
    DELETE FROM auth_flows WHERE id IN (
        SELECT f.id FROM auth_flows f WHERE f.status <> 'IN_PROGRESS' AND NOT f.open AND f.updated_at < $1
            AND EXISTS (
                SELECT 1 FROM auth_flows later WHERE later.connection_id = f.connection_id
                    AND (later.kind = 'HEALTH_CHECK') = (f.kind = 'HEALTH_CHECK')
                    AND (later.created_at, later.id) > (f.created_at, f.id))
        ORDER BY f.updated_at LIMIT $2)";

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = sql_types::Uuid)]
    id: Column<AuthConnectionId>,
}

/// Notifies the subscribers of the connection when the transaction commits.
pub(super) async fn report(connection: &mut AsyncPgConnection, id: AuthConnectionId) -> Result<(), CallError> {
    diesel::select(pg_notify(AUTH_CHANNEL, id.to_string())).execute(connection).await?;
    Ok(())
}

/// Locks the connection until the transaction ends, so that two flows of it do not begin at once and it is not deleted
/// meanwhile. `false` if there is no such connection.
pub(super) async fn lock(connection: &mut AsyncPgConnection, id: AuthConnectionId) -> Result<bool, CallError> {
    let row = auth_connections::table.find(Column(id)).select(auth_connections::id);
    is_there(connection, row.for_update()).await
}

/// The latest login flow of each of these connections.
pub(super) async fn latest(
    connection: &mut AsyncPgConnection,
    ids: &[Column<AuthConnectionId>],
) -> Result<Vec<FlowRow>, CallError> {
    let rows = auth_flows::table.filter(auth_flows::connection_id.eq_any(ids));
    let rows = rows.filter(auth_flows::kind.ne(FlowKind::HealthCheck.as_str())).select(FlowRow::as_select());
    let order = (auth_flows::connection_id, auth_flows::created_at.desc(), auth_flows::id.desc());
    Ok(rows.distinct_on(auth_flows::connection_id).order(order).load(connection).await?)
}

pub(super) async fn begin(connection: &mut AsyncPgConnection, flow: &Flow) -> Result<FlowBegun, CallError> {
    if !lock(connection, flow.connection).await? {
        return Ok(FlowBegun::Gone);
    }
    let of_connection = auth_flows::table.filter(auth_flows::connection_id.eq(Column(flow.connection)));
    let running = of_connection.filter(auth_flows::status.eq(RUNNING)).select(FlowRow::as_select()).for_update();
    let running: Vec<Flow> = all(connection, running).await?;
    for running in running {
        if (running.kind == FlowKind::HealthCheck) != (flow.kind == FlowKind::HealthCheck) {
            continue;
        }
        if running.is_running(flow.created_at) {
            return Ok(FlowBegun::Running(Box::new(running)));
        }
        let expired = running.on(casement_domain::auth_connection::FlowEvent::Expired, flow.created_at);
        let expired = expired.unwrap_or_else(|_| unreachable!("a flow that goes on can expire"));
        put(connection, &expired).await?;
    }
    diesel::insert_into(auth_flows::table).values(FlowRow::of(flow)).execute(connection).await?;
    report(connection, flow.connection).await?;
    Ok(FlowBegun::Yes)
}

/// Stores the flow if its stored revision is still the one that was read. Returns whether it was stored.
pub(super) async fn put(connection: &mut AsyncPgConnection, flow: &Flow) -> Result<bool, CallError> {
    let seen = auth_flows::table.find(Column(flow.id)).filter(auth_flows::status.eq(RUNNING));
    let seen = seen.filter(auth_flows::revision.eq(flow.revision));
    let mut next = FlowRow::of(flow);
    next.revision += 1;
    let stored = diesel::update(seen).set(next).execute(connection).await? == 1;
    if stored {
        report(connection, flow.connection).await?;
    }
    Ok(stored)
}

/// Applies the end of a flow to its connection, which the caller has locked.
pub(super) async fn conclude(connection: &mut AsyncPgConnection, flow: &Flow, end: &FlowEnd) -> Result<(), CallError> {
    let row = auth_connections::table.find(Column(flow.connection));
    if let Some(status) = end.status {
        // A login counts as a health check: the next one is due after the interval.
        let known = (auth_connections::status.eq(Column(status)), auth_connections::check_taken_at.eq(flow.updated_at));
        diesel::update(row).set(known).execute(connection).await?;
    }
    if let Some(needs) = &end.needs {
        let needs: Vec<String> = needs.iter().map(FlowRequirement::to_text).collect();
        diesel::update(row).set(auth_connections::needs.eq(needs)).execute(connection).await?;
    }
    if let Some(at) = end.checked_at {
        diesel::update(row).set(auth_connections::last_check_at.eq(at)).execute(connection).await?;
    }
    let is_stored = match &end.collected {
        None => true,
        Some(CollectedCredential::New { credential, secrets, max }) => {
            credential::insert(connection, credential, secrets, *max).await? == CredentialStored::Yes
        }
        Some(CollectedCredential::Changed { id, change }) => {
            matches!(credential::set(connection, *id, change, flow.updated_at).await?, CredentialUpdated::Yes(_))
        }
    };
    if let Some(name) = end.credential.as_ref().filter(|_| is_stored) {
        // Unless a credential was set on the connection meanwhile.
        let nameless = row.filter(auth_connections::credential_name.is_null());
        let nameless = nameless.filter(auth_connections::credential_provider.is_null());
        diesel::update(nameless).set(auth_connections::credential_name.eq(name)).execute(connection).await?;
    }
    if let Some(next) = &end.next {
        // A flow that is running already serves as well.
        let _ = begin(connection, next).await?;
    }
    Ok(())
}

/// Allows the session of a flow to save its profile, unless the session of another running flow may do so. Without
/// `over`, also refused if the profile has a newer version than the one that the session loaded.
pub(super) async fn permit_save(
    connection: &mut AsyncPgConnection,
    flow: &Flow,
    over: bool,
) -> Result<ProfileSavePermission, CallError> {
    // Locked against the deletion of the connection, which withdraws the permission.
    let row = auth_flows::table.find(Column(flow.id)).filter(auth_flows::status.eq(RUNNING));
    let held = is_there(connection, row.select(auth_flows::id).for_update()).await?;
    let id = Column(flow.session);
    let session = sessions::table.find(id).filter(sessions::state.eq("active"));
    let loaded = session.select((sessions::profile_id, sessions::profile_version_id, sessions::save_profile));
    let loaded: Option<(Option<Uuid>, Option<Uuid>, bool)> = loaded.get_result(connection).await.optional()?;
    let Some((profile, loaded, may)) = loaded.filter(|_| held) else { return Ok(ProfileSavePermission::No) };
    if may {
        return Ok(ProfileSavePermission::Yes);
    }
    if let Some(profile) = profile {
        // The same lock as for saving the profile, so that two flows do not get here at once.
        let version = profiles::table.find(profile).select(profiles::version_id).for_update();
        let version: Option<Option<Uuid>> = version.get_result(connection).await.optional()?;
        let others = auth_flows::table.filter(auth_flows::status.eq(RUNNING)).select(auth_flows::session_id);
        let saving = sessions::table.filter(sessions::profile_id.eq(profile)).filter(sessions::save_profile);
        let saving = saving.filter(sessions::id.eq_any(others)).count();
        if saving.get_result::<i64>(connection).await? > 0 {
            return Ok(ProfileSavePermission::NotYet);
        }
        if !over && version.is_some_and(|version| version != loaded) {
            return Ok(ProfileSavePermission::Outdated);
        }
    }
    if diesel::update(session).set(sessions::save_profile.eq(true)).execute(connection).await? == 0 {
        return Ok(ProfileSavePermission::No);
    }
    let browser = browsers::table.filter(browsers::session_id.eq(id));
    diesel::update(browser).set(browsers::save_profile.eq(true)).execute(connection).await?;
    Ok(ProfileSavePermission::Yes)
}

/// Cancels the flows of a connection that is being deleted, and deletes those without a session to end. Returns the
/// remaining sessions, which may no longer save their profiles.
pub(super) async fn cancel(
    connection: &mut AsyncPgConnection,
    id: AuthConnectionId,
) -> Result<Vec<SessionId>, CallError> {
    let of_connection = auth_flows::table.filter(auth_flows::connection_id.eq(Column(id)));
    let nothing_left = of_connection.filter(auth_flows::status.ne(RUNNING)).filter(auth_flows::open.eq(false));
    diesel::delete(nothing_left).execute(connection).await?;
    let ended = (
        auth_flows::status.eq("CANCELED"),
        auth_flows::revision.eq(auth_flows::revision + 1),
        auth_flows::submission.eq(None::<Vec<u8>>),
        auth_flows::entered.eq(None::<Vec<u8>>),
    );
    let running = of_connection.filter(auth_flows::status.eq(RUNNING));
    diesel::update(running).set(ended).execute(connection).await?;
    diesel::delete(of_connection.filter(auth_flows::open.eq(false))).execute(connection).await?;
    let left: Vec<Column<SessionId>> = of_connection.select(auth_flows::session_id).load(connection).await?;
    let mute = sessions::table.filter(sessions::id.eq_any(&left));
    diesel::update(mute).set(sessions::save_profile.eq(false)).execute(connection).await?;
    let mute = browsers::table.filter(browsers::session_id.eq_any(&left));
    diesel::update(mute).set(browsers::save_profile.eq(false)).execute(connection).await?;
    Ok(left.value()?)
}

pub(super) async fn closed(connection: &mut AsyncPgConnection, id: AuthFlowId) -> Result<(), CallError> {
    let row = auth_flows::table.find(Column(id)).filter(auth_flows::status.ne(RUNNING));
    diesel::update(row).set(auth_flows::open.eq(false)).execute(connection).await?;
    let connections = auth_connections::table.select(auth_connections::id);
    let orphan = row.filter(auth_flows::connection_id.ne_all(connections));
    diesel::delete(orphan).execute(connection).await?;
    Ok(())
}

pub(super) async fn orphaned_flows(
    connection: &mut AsyncPgConnection,
    node: NodeId,
) -> Result<Vec<OrphanedFlow>, CallError> {
    let not_deleted = nodes::table.filter(is_alive()).filter(nodes::id.ne(Column(node)));
    let not_deleted = not_deleted.select(nodes::id.nullable());
    let rows = auth_flows::table.filter(auth_flows::status.eq(RUNNING).or(auth_flows::open));
    let rows = rows.filter(auth_flows::node_id.is_null().or(auth_flows::node_id.ne_all(not_deleted).assume_not_null()));
    let rows = rows.select((auth_flows::id, auth_flows::connection_id, auth_flows::node_id.is_null()));
    let rows: Vec<(Column<AuthFlowId>, Column<AuthConnectionId>, bool)> = rows.load(connection).await?;
    let found = |(flow, of, is_new): (Column<_>, Column<_>, _)| OrphanedFlow { flow: flow.0, connection: of.0, is_new };
    Ok(rows.into_iter().map(found).collect())
}

pub(super) async fn take(
    connection: &mut AsyncPgConnection,
    id: AuthFlowId,
    node: NodeId,
) -> Result<Option<Flow>, CallError> {
    let row = auth_flows::table.find(Column(id)).select(FlowRow::as_select()).for_update();
    let flow: Option<Flow> = find(connection, row).await?;
    let Some(flow) = flow else { return Ok(None) };
    if let Some(other) = flow.node.filter(|other| *other != node) {
        let not_deleted = nodes::table.find(Column(other)).filter(is_alive()).count();
        if not_deleted.get_result::<i64>(connection).await? > 0 {
            return Ok(None);
        }
    }
    let taken = diesel::update(auth_flows::table.find(Column(id)));
    let next = (auth_flows::node_id.eq(Column(node)), auth_flows::revision.eq(flow.revision + 1));
    find(connection, taken.set(next).returning(FlowRow::as_returning())).await
}

pub(super) async fn due(
    connection: &mut AsyncPgConnection,
    now: OffsetDateTime,
    max: u32,
) -> Result<Vec<Column<AuthConnectionId>>, CallError> {
    let statement = diesel::sql_query(DUE).bind::<sql_types::Timestamptz, _>(now);
    let ids: Vec<Id> = statement.bind::<sql_types::Integer, _>(Column(max)).load(connection).await?;
    let ids: Vec<_> = ids.into_iter().map(|row| row.id).collect();
    if ids.is_empty() {
        return Ok(ids);
    }
    let taken = auth_connections::table.filter(auth_connections::id.eq_any(&ids));
    diesel::update(taken).set(auth_connections::check_taken_at.eq(now)).execute(connection).await?;
    Ok(ids)
}
