//! Audit records: written once each, read in order, partitioned by month.

use casement_domain::audit::{
    AuditEntry, AuditFilter, AuditQuery, AuditRange, AuditRecord, AuditRepository, AuditService, AuthStrategy, NodeRun,
    RangeMeasurement, Reading,
};
use casement_domain::testing::{NOON, audit_entry, node_id, organization_id};
use casement_domain::{NodeId, NodeRunId, OrganizationId, StoreError, UserId};
use casement_postgres::PgAudit;
use pretty_assertions::assert_eq;
use time::{Duration, OffsetDateTime};
use ulid::Ulid;

use crate::support::{Held, TestResult};
use crate::world::{Fault, World, key_id, other_node, user_id};

pub(super) fn entry(n: u32) -> AuditEntry {
    AuditEntry { api_key: Some(key_id(1)), ..audit_entry(n) }
}

/// The record of an entry with the first key, whose creator has no e-mail address.
pub(super) fn of(entry: AuditEntry) -> AuditRecord {
    AuditRecord { organization: organization_id(), user: Some(user_id()), email: String::new(), entry }
}

pub(super) fn record(n: u32) -> AuditRecord {
    of(entry(n))
}

fn filter(change: impl FnOnce(&mut AuditQuery)) -> AuditFilter {
    let day = Duration::days(1);
    let mut query = AuditQuery { start: Some(NOON - day), end: Some(NOON + day), ..AuditQuery::default() };
    change(&mut query);
    query.parse(Reading::Export).expect("a filter").0
}

/// All records.
pub(super) async fn records(audit: &PgAudit) -> Result<Vec<AuditRecord>, Fault> {
    found(audit, |_| ()).await
}

async fn found(audit: &PgAudit, change: impl FnOnce(&mut AuditQuery)) -> Result<Vec<AuditRecord>, Fault> {
    Ok(audit.page(organization_id(), &filter(change), AuditRange::default(), 100).await?)
}

#[tokio::test]
async fn a_record_comes_back_as_it_was_and_stands_there_once() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    audit.append(&[entry(1), entry(2)]).await?;
    audit.append(&[entry(1)]).await?;
    assert_eq!(found(&audit, |_| ()).await?, [record(2), record(1)]);
    Ok(())
}

#[tokio::test]
async fn what_came_of_a_call_is_what_was_stated_last() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let failed = AuditEntry { status: 503, duration_ms: 70, ..entry(1) };
    audit.append(&[entry(1), entry(2)]).await?;
    audit.append(std::slice::from_ref(&failed)).await?;
    assert_eq!(records(&audit).await?, [record(2), of(failed)]);
    Ok(())
}

#[tokio::test]
async fn the_key_or_else_the_project_shows_whose_a_record_is() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    world.db.execute("UPDATE users SET email = 'ada@casement.test'").await?;
    let with_token = AuditEntry { api_key: None, auth_strategy: AuthStrategy::SessionToken, ..entry(2) };
    let unknown = AuditEntry { api_key: Some(key_id(404)), ..entry(3) };
    let unowned = AuditEntry { api_key: None, project: None, ..entry(4) };
    audit.append(&[entry(1), with_token.clone(), unknown, unowned]).await?;
    let tokens = AuditRecord { user: None, ..of(with_token) };
    let keys = AuditRecord { email: "ada@casement.test".to_owned(), ..record(1) };
    assert_eq!(found(&audit, |_| ()).await?, [tokens, keys]);
    Ok(())
}

#[tokio::test]
async fn records_of_one_moment_are_paged_without_gap_or_duplicate_while_others_arrive() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let same = |n| AuditEntry { at: NOON, ..entry(n) };
    audit.append(&(1..=25).map(same).collect::<Vec<_>>()).await?;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = audit.page(organization_id(), &filter(|_| ()), AuditRange { after, through: None }, 10).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.position());
        seen.extend(page);
        // Newer than all records that were read.
        audit.append(&[entry(100 + seen.len() as u32)]).await?;
    }
    assert_eq!(seen, (1..=25).rev().map(|n| of(same(n))).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn a_chunk_is_measured_before_it_is_read() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    audit.append(&(1..=5).map(entry).collect::<Vec<_>>()).await?;
    let all = filter(|_| ());
    let measured =
        async |after, limit| audit.measure(organization_id(), &all, AuditRange { after, through: None }, limit).await;
    let of = |count, first: u32, last: u32, more| {
        let ends = Some((record(first).position(), record(last).position()));
        RangeMeasurement { count, ends, more }
    };
    assert_eq!(measured(None, 3).await?, of(3, 5, 3, true));
    assert_eq!(measured(None, 5).await?, of(5, 5, 1, false));
    assert_eq!(measured(Some(record(3).position()), 3).await?, of(2, 2, 1, false));
    assert_eq!(measured(Some(record(1).position()), 3).await?, RangeMeasurement::default());

    let far = async |after, count| audit.position_after(organization_id(), &all, after, count).await;
    assert_eq!(far(None, 2).await?, Some(record(4).position()));
    assert_eq!(far(Some(record(4).position()), 3).await?, Some(record(1).position()));
    assert_eq!(far(Some(record(4).position()), 4).await?, None);
    let middle = AuditRange { after: Some(record(5).position()), through: Some(record(3).position()) };
    assert_eq!(audit.page(organization_id(), &all, middle, 10).await?, [record(4), record(3)]);
    assert_eq!(audit.measure(organization_id(), &all, middle, 10).await?, of(2, 4, 3, false));
    audit.append(&[entry(6)]).await?;
    let ahead = AuditRange { after: Some(record(5).position().ahead()), through: Some(record(4).position()) };
    assert_eq!(audit.page(organization_id(), &all, ahead, 10).await?, [record(5), record(4)]);
    Ok(())
}

#[tokio::test]
async fn every_filter_finds_what_it_says() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let token = AuditEntry { auth_strategy: AuthStrategy::SessionToken, service: AuditService::Session, ..entry(1) };
    let post = AuditEntry { method: "POST".into(), status: 418, path: "/a%b_c\\d".into(), api_key: None, ..entry(2) };
    let other = AuditEntry { client_ip: "2001:db8::1".into(), ..entry(3) };
    audit.append(&[token.clone(), post.clone(), other.clone()]).await?;
    let (token, other) = (of(token), of(other));
    let post = AuditRecord { user: None, ..of(post) };
    let finds = async |change: fn(&mut AuditQuery)| found(&audit, change).await;
    assert_eq!(finds(|q| q.auth_strategy = Some("session_token".into())).await?, [&token].map(Clone::clone));
    assert_eq!(finds(|q| q.service = Some("session".into())).await?, [&token].map(Clone::clone));
    assert_eq!(finds(|q| q.method = Some("post".into())).await?, [&post].map(Clone::clone));
    assert_eq!(finds(|q| q.exclude_methods = vec!["get".into()]).await?, [&post].map(Clone::clone));
    assert_eq!(finds(|q| q.search = Some("2001:DB8".into())).await?, [&other].map(Clone::clone));
    assert_eq!(finds(|q| q.search = Some("418".into())).await?, [&post].map(Clone::clone));
    assert_eq!(finds(|q| q.search = Some("%B_c\\".into())).await?, [&post].map(Clone::clone));
    assert_eq!(finds(|q| q.search = Some("_b%".into())).await?, []);
    assert_eq!(finds(|q| q.search = Some("'; DROP TABLE audit_records; --".into())).await?, []);
    let user = user_id().to_string().to_ascii_uppercase();
    assert_eq!(found(&audit, |q| q.search_users = vec![user.clone()]).await?, [other.clone(), token.clone()]);
    let both = found(&audit, |q| (q.search, q.search_users) = (Some("418".into()), vec![user])).await?;
    assert_eq!(both, [other, post, token]);
    Ok(())
}

#[tokio::test]
async fn no_one_reads_the_records_of_another_organization() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    audit.append(&[entry(1)]).await?;
    let other = OrganizationId::from_ulid(Ulid::from_parts(77, 7));
    assert_eq!(audit.page(other, &filter(|_| ()), AuditRange::default(), 10).await?, []);
    Ok(())
}

const PARTITIONS: &str =
    "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'audit_records'::regclass ORDER BY 1";

#[tokio::test]
async fn months_are_made_ahead_and_dropped_when_they_are_too_old_and_lose_no_record() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    // Stored before its partition exists.
    audit.append(&[entry(1)]).await?;
    let (one, other) = tokio::join!(audit.tidy(NOON, NOON), audit.tidy(NOON, NOON));
    one?;
    other?;
    let months = |n: i64| NOON + Duration::days(31 * n);
    let name = |at: OffsetDateTime| vec![format!("audit_records_{}_{:02}", at.year(), u8::from(at.month()))];
    let other = vec!["audit_records_other".to_owned()];
    assert_eq!(world.db.rows(PARTITIONS).await?, [name(NOON), name(months(1)), name(months(2)), other.clone()]);
    assert_eq!(found(&audit, |_| ()).await?, [record(1)]);

    audit.tidy(months(3), NOON).await?;
    assert_eq!(found(&audit, |_| ()).await?, [record(1)], "its month has not ended before");
    audit.tidy(months(3), months(1)).await?;
    assert_eq!(found(&audit, |_| ()).await?, []);
    assert!(!world.db.rows(PARTITIONS).await?.contains(&name(NOON)));
    Ok(())
}

#[tokio::test]
async fn records_of_a_month_that_has_later_ones_are_deleted_when_they_are_too_old() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let at = |n: u32, at: OffsetDateTime| AuditEntry { at, ..entry(n) };
    audit.tidy(NOON, NOON - Duration::DAY).await?;
    let hours = |n: i64| NOON - Duration::hours(n);
    audit.append(&[at(1, hours(3)), at(2, hours(2)), at(3, hours(1)), at(4, NOON)]).await?;
    // One more than a statement deletes.
    world
        .db
        .execute(
            "INSERT INTO audit_records SELECT (jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid()))).*
             FROM audit_records r, generate_series(1, 5000) WHERE r.id = (SELECT id FROM audit_records ORDER BY at LIMIT 1)",
        )
        .await?;
    audit.tidy(NOON, hours(2)).await?;
    assert_eq!(found(&audit, |_| ()).await?, [of(at(4, NOON)), of(at(3, hours(1))), of(at(2, hours(2)))]);
    Ok(())
}

#[tokio::test]
async fn a_dump_that_reads_the_records_does_not_make_other_calls_wait() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    // What `pg_dump` holds until its end.
    let dump = Held::begin(&world.db, "LOCK TABLE audit_records IN ACCESS SHARE MODE").await?;

    let refused = audit.tidy(NOON, NOON).await;

    assert!(format!("{refused:?}").contains("lock timeout"), "{refused:?}");
    audit.append(&[entry(1)]).await?;
    dump.commit().await?;
    audit.tidy(NOON, NOON).await?;
    assert_eq!(found(&audit, |_| ()).await?, [record(1)]);
    Ok(())
}

fn somebody() -> UserId {
    UserId::from_ulid(Ulid::from_parts(9, 2))
}

#[tokio::test]
async fn filters_are_answered_from_indexes_whose_size_is_that_of_the_answer() -> TestResult {
    let rare_user = somebody();
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    audit.append(&[entry(1)]).await?;
    // Ten thousand common records, and one of each rare kind.
    world
        .db
        .execute(&format!(
            "INSERT INTO audit_records
             SELECT gen_random_uuid(), organization_id, at - n * interval '1 s', auth_strategy, service, user_id, email, api_key_id,
                    project_id, client_ip, domain, method, path, route, status, duration_ms, user_agent, request_id
             FROM audit_records, generate_series(1, 10000) AS n;
             INSERT INTO audit_records
             SELECT gen_random_uuid(), organization_id, at, rare.strategy, rare.service, rare.user_id, email, api_key_id, project_id,
                    client_ip, domain, rare.method, path, route, status, duration_ms, user_agent, request_id
             FROM (SELECT * FROM audit_records LIMIT 1) AS one, (VALUES ('none', 'api', 'GET', ''), ('api_key', 'session', 'GET', ''),
                  ('api_key', 'api', 'PATCH', ''), ('api_key', 'api', 'GET', '{rare_user}')) AS rare (strategy, service, method, user_id);
             ANALYZE audit_records",
        ))
        .await?;
    let plan = async |change: fn(&mut AuditQuery), after| {
        audit.plan(organization_id(), &filter(change), AuditRange { after, through: None }, 100).await
    };
    let all = plan(|_| (), None).await?;
    let beyond = plan(|_| (), Some(record(1).position())).await?;
    for plan in [&all, &beyond] {
        assert!(
            plan.contains("Index Scan Backward") && !plan.contains("Sort"),
            "read in the order of an index: {plan}"
        );
    }
    assert!(beyond.contains("ROW(at, id) <"), "begun where the page before ended: {beyond}");
    let rare: [fn(&mut AuditQuery); 3] = [
        |q| q.method = Some("PATCH".into()),
        |q| q.auth_strategy = Some("none".into()),
        |q| q.service = Some("session".into()),
    ];
    // Indexes of a partition are named after their columns; those of rare records have the last numbers.
    for change in rare {
        let plan = plan(change, None).await?;
        assert!(!plan.contains("Seq Scan") && plan.contains("organization_id_at_id_idx"), "{plan}");
        assert_eq!(found(&audit, change).await?.len(), 1);
    }
    let by_somebody: fn(&mut AuditQuery) = |q| q.search_users = vec![somebody().to_string()];
    let plan_of_one = plan(by_somebody, None).await?;
    assert!(!plan_of_one.contains("Seq Scan") && plan_of_one.contains("user_id_at_id_idx"), "{plan_of_one}");
    assert_eq!(found(&audit, by_somebody).await?.len(), 1);
    let common = plan(|q| q.method = Some("GET".into()), None).await?;
    assert!(common.contains("Index Scan Backward") && !common.contains("Sort"), "{common}");
    Ok(())
}

fn run(n: u128) -> NodeRun {
    NodeRun { node: node_id(), run: NodeRunId::from_ulid(Ulid(n)) }
}

#[tokio::test]
async fn a_call_that_no_one_completes_any_more_is_recorded_as_unknown() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let restart = NOON + Duration::minutes(2);
    audit.begin(run(1), &[entry(1), entry(2), entry(3)]).await?;
    audit.append(&[entry(2)]).await?;
    audit.withdraw(&[entry(3).id]).await?;
    assert_eq!(records(&audit).await?, [record(2)], "what has only begun is not shown");
    assert_eq!(audit.recover(run(1), restart).await?, 0, "this run goes on");

    assert_eq!(audit.recover(run(2), restart).await?, 1);
    let took = (restart - entry(1).at).whole_milliseconds() as u64;
    let unknown = of(AuditEntry { at: restart, status: AuditEntry::UNKNOWN, duration_ms: took, ..entry(1) });
    assert_eq!(records(&audit).await?, [unknown, record(2)]);
    assert_eq!(audit.recover(run(2), restart).await?, 0, "once");
    Ok(())
}

#[tokio::test]
async fn what_a_node_had_begun_is_recorded_by_another_once_it_is_silent() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let other = NodeRun { node: NodeId::from_ulid(Ulid(77)), run: NodeRunId::from_ulid(Ulid(1)) };
    audit.begin(run(1), &[entry(1)]).await?;
    assert_eq!(audit.recover(other, NOON + Duration::SECOND).await?, 0);
    world.silence(node_id()).await?;
    assert_eq!(audit.recover(other, NOON + Duration::SECOND).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_silent_node_completes_the_record_that_another_has_made_of_its_call() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let other = NodeRun { node: other_node(), run: NodeRunId::from_ulid(Ulid(1)) };
    let recovery = NOON + Duration::MINUTE;
    audit.begin(run(1), &[entry(1)]).await?;
    world.silence(node_id()).await?;
    assert_eq!(audit.recover(other, recovery).await?, 1);

    audit.append(&[entry(1), entry(2)]).await?;

    assert_eq!(records(&audit).await?, [of(AuditEntry { at: recovery, ..entry(1) }), record(2)]);
    Ok(())
}

/// Makes a node silent for a minute: its heartbeat and its mark.
async fn silence(world: &World, node: NodeId) -> TestResult {
    world.silence(node).await?;
    let node = uuid::Uuid::from_u128(node.ulid().0);
    let old = "UPDATE audit_records_marks SET marked_at = now() - interval '1 minute'";
    Ok(world.db.execute(&format!("{old} WHERE node_id = '{node}'")).await?)
}

#[tokio::test]
async fn records_are_complete_up_to_the_earliest_mark_of_a_living_node() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    let (other, later) = (other_node(), NOON + Duration::MINUTE);
    assert_eq!(audit.complete(other, NOON - Duration::MINUTE).await?, NOON - Duration::MINUTE);
    for at in [NOON, NOON + Duration::SECOND] {
        assert!(audit.mark(node_id(), at).await?);
        assert_eq!(audit.complete(other, later).await?, at);
    }
    assert_eq!(audit.complete(other, NOON).await?, NOON, "never later than its own");
    assert_eq!(audit.complete(node_id(), later).await?, later, "its own mark holds nothing back");
    world.silence(node_id()).await?;
    assert_eq!(audit.complete(other, later).await?, NOON + Duration::SECOND, "it marks, so it lives");
    silence(&world, node_id()).await?;
    assert_eq!(audit.complete(other, later).await?, later, "a silent one is not waited for");
    Ok(())
}

#[tokio::test]
async fn a_node_that_was_silent_stores_no_records_that_exports_have_passed() -> TestResult {
    let world = World::new().await?;
    let node = |id| PgAudit::new(world.db.database().clone()).on_node(id);
    let (silent, other) = (node(node_id()), node(other_node()));
    let at = |seconds| NOON + Duration::seconds(seconds);
    let record = |n, seconds| AuditEntry { at: at(seconds), ..entry(n) };
    assert!(silent.mark(node_id(), NOON).await?);
    assert!(other.mark(other_node(), NOON).await?);
    silent.begin(run(1), &[entry(1)]).await?;
    silent.append(&[record(2, -5)]).await?;
    silence(&world, node_id()).await?;
    silent.append(&[record(3, 1)]).await?;
    assert_eq!(other.complete(other_node(), at(10)).await?, at(10));

    let refused = silent.append(&[record(1, 20), record(4, 9)]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert_eq!(silent.recover(run(2), at(11)).await?, 1, "the intent of the refused record stays");
    silent.append(&[record(5, 10)]).await?;
    assert_eq!(silent.fence(node_id()).await?, Some(at(10)));
    assert!(!silent.mark(node_id(), at(9)).await?);
    assert!(silent.mark(node_id(), at(10)).await?);
    assert_eq!(silent.fence(node_id()).await?, None);
    assert_eq!(other.complete(other_node(), at(30)).await?, at(10), "it is waited for again");
    Ok(())
}

#[tokio::test]
async fn two_nodes_agree_on_what_is_complete_while_both_store_and_export() -> TestResult {
    let world = World::new().await?;
    let node = |id| PgAudit::new(world.db.database().clone()).on_node(id);
    let mut ends = Vec::new();
    for second in 1..=5 {
        let at = NOON + Duration::seconds(second);
        let (one, other) = (node(node_id()), node(other_node()));
        let (first, second) = tokio::join!(one.mark(node_id(), at), other.mark(other_node(), at));
        assert!(first? && second?);
        let (first, second) = tokio::join!(one.complete(node_id(), at), other.complete(other_node(), at));
        ends.push((first?, second?));
    }
    assert!(ends.iter().all(|(one, other)| one == other), "{ends:?}");
    Ok(())
}
