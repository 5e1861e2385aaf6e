//! Log lines, sessions, secrets and lists of apps.

use pretty_assertions::assert_eq;

use super::*;

#[tokio::test]
async fn the_logs_of_a_project_share_its_budget_and_a_line_says_so() -> TestResult {
    let apps = Apps::new().await?;
    let _stored = apps.store(&deployment(1)).await?;
    let budgets = StorageBudgets { project: 4 * (ROW_BYTES + 1000), ..StorageBudgets::UNBOUNDED };
    let bounds = StorageBounds { budgets, ..StorageBounds::unbounded(node_id()) };
    let lines = PgLines::new(apps.world.db.database().clone(), bounds);
    let text = "x".repeat(1000);
    let (build, again) = (Subject::Deployment(deployment(1).id), Subject::Deployment(deployment(2).id));
    let _stored = apps.store(&deployment(2)).await?;
    assert!(!lines.append(build, &[line(0, &text), line(1, &text), line(2, &text)]).await?.full);
    assert!(lines.append(again, &[line(0, &text), line(1, &text), line(2, &text)]).await?.full);
    let span = LineRange { from: 0, since: None, max: 100 };
    let given = "(the project's storage is used up; the rest is not kept)";
    let texts: Vec<String> = lines.page(again, span).await?.into_iter().map(|line| line.text).collect();
    assert_eq!(texts, [text.as_str(), given]);
    assert!(lines.append(again, &[line(3, "more")]).await?.full);
    assert_eq!(lines.page(again, span).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn lines_are_stored_once_in_their_order_within_their_bound() -> TestResult {
    let apps = Apps::new().await?;
    let subject = Subject::Invocation(invocation(1).id);
    assert_eq!(apps.lines.stored(subject).await?, StoredLines::default());
    apps.lines.append(subject, &[line(0, "a"), line(1, "b\0")]).await?;
    // A killed server and its successor store the same lines.
    let both = [&[line(1, "b\0"), line(2, "c")][..], &[line(2, "c"), line(3, "d")][..]];
    for one in futures_util::future::join_all(both.map(|lines| apps.lines.append(subject, lines))).await {
        one?;
    }
    let span = LineRange { from: 1, since: None, max: 100 };
    let texts: Vec<String> = apps.lines.page(subject, span).await?.into_iter().map(|line| line.text).collect();
    assert!(
        texts == ["b\u{fffd}", "c", "d"] || texts == ["b\u{fffd}", "c"] || texts == ["b\u{fffd}", "d"],
        "{texts:?}"
    );
    let since = LineRange { from: 0, since: Some(seconds(1)), max: 1 };
    assert_eq!(apps.lines.page(subject, since).await?, [line(1, "b\u{fffd}")]);

    let long = "x".repeat(Line::MAX_BYTES);
    let many: Vec<Line> = (10..2000).map(|number| line(number, &long)).collect();
    assert!(apps.lines.append(subject, &many).await?.full);
    let stored = apps.lines.append(subject, &[line(5000, "more")]).await?;
    assert!(stored.full && stored.bytes <= Line::MAX_BYTES_IN_ALL);
    let other = Subject::Deployment(deployment(1).id);
    apps.lines.append(other, &[line(9000, "later")]).await?;

    // More lines than one statement deletes.
    apps.world
        .db
        .rows(&format!(
            "INSERT INTO app_lines SELECT subject_id, n, now(), '' FROM app_line_counts, generate_series(10000, 50000) n
             WHERE subject_id = '{}' RETURNING 'x'",
            uuid::Uuid::from_u128(invocation(1).id.ulid().0)
        ))
        .await?;
    let mut rounds = 0;
    while apps.lines.forget(seconds(8000), 10).await? > 0 {
        rounds += 1;
    }
    assert!(rounds > 2, "forgotten in {rounds} rounds");
    assert_eq!(apps.count("app_line_counts").await?, "1");
    assert_eq!(apps.lines.page(subject, LineRange { max: 10, ..LineRange::default() }).await?, []);
    assert_eq!(apps.lines.page(other, LineRange { max: 10, ..LineRange::default() }).await?.len(), 1);
    assert_eq!(apps.lines.forget(seconds(8000), 10).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_session_belongs_to_an_invocation_only_as_long_as_that_has_not_ended() -> TestResult {
    let apps = Apps::new().await?;
    apps.running(1).await?;
    let of =
        |n: u32, which: u32| casement_domain::session::Session { invocation: Some(invocation(which).id), ..session(n) };
    let create = async |one| apps.world.sessions.create(testing::organization_id(), &one, None).await;
    assert_eq!(create(of(1, 1)).await?, Created::NoInvocation, "there is none");
    assert_eq!(apps.invoke(&invocation(1)).await?, InvocationStored::Yes);
    assert_eq!(create(of(1, 1)).await?, Created::Yes);
    let found = apps.world.sessions.of_invocation(invocation(1).id).await?;
    assert_eq!(found, [of(1, 1)]);
    let ended = invocation(1).on(&InvocationEvent::Cancel(None), seconds(9))?;
    assert_eq!(apps.invocations.replace(&invocation(1), &ended).await?, Replaced::Yes);
    assert_eq!(create(of(2, 1)).await?, Created::NoInvocation, "it has ended");
    Ok(())
}

#[tokio::test]
async fn a_project_with_a_program_is_not_deleted() -> TestResult {
    let apps = Apps::new().await?;
    let running = apps.running(1).await?;
    assert_eq!(apps.invoke(&invocation(1)).await?, InvocationStored::Yes);
    let delete = apps.world.projects.delete(testing::organization_id(), testing::project_id(), NOON);
    let ProjectDeleted::InUse(found) = delete.await? else { panic!("it is gone") };
    let kinds: Vec<_> = found.iter().map(|one| (one.kind, one.count)).collect();
    assert_eq!(kinds, [("deployments", 1), ("invocations", 1)]);
    let stopped = running.on(&DeploymentEvent::Stop, seconds(40))?;
    assert_eq!(apps.deployments.replace(&running, &stopped).await?, Replaced::Yes);
    let ended = invocation(1).on(&InvocationEvent::DeploymentStopped, seconds(40))?;
    assert_eq!(apps.invocations.replace(&invocation(1), &ended).await?, Replaced::Yes);
    let delete = apps.world.projects.delete(testing::organization_id(), testing::project_id(), NOON);
    assert_eq!(delete.await?, ProjectDeleted::Yes);
    Ok(())
}

#[tokio::test]
async fn secrets_under_an_old_key_are_found_and_put_under_another() -> TestResult {
    let apps = Apps::new().await?;
    let _stored = apps.store(&deployment(1)).await?;
    let current = PlainSealer.current()?;
    assert_eq!(apps.deployments.sealed_with_other_key(current, 10).await?, Vec::<SealedDeploymentSecret>::new());
    let old = apps.deployments.sealed_with_other_key(KeyId([9; 8]), 10).await?;
    assert_eq!(old.len(), 3);
    let other = [&[KeyId::FORM][..], &[9; 8], b"other"].concat();
    apps.deployments.reseal(&old[0], &other).await?;
    apps.deployments.reseal(&old[0], b"late").await?;
    assert_eq!(apps.deployments.sealed_with_other_key(KeyId([9; 8]), 10).await?.len(), 2);
    let mut keys = apps.deployments.keys().await?;
    keys.sort_by_key(|key| key.0);
    assert_eq!(keys.len(), 2);
    assert!(keys.contains(&current) && keys.contains(&KeyId([9; 8])));
    Ok(())
}

#[tokio::test]
async fn deployments_are_listed_by_their_apps() -> TestResult {
    let apps = Apps::new().await?;
    let running = apps.running(1).await?;
    let _stored = apps.store(&Deployment { version: "v2".to_owned(), ..deployment(2) }).await?;
    let list = async |filter: DeploymentFilter| {
        let listed = apps.deployments.list(testing::project_id(), &filter, PAGE).await?;
        Ok::<_, Fault>(listed.items.into_iter().map(|one| one.id).collect::<Vec<_>>())
    };
    let any = DeploymentFilter::default;
    let version = |text: &str| Some(text.to_owned());
    assert_eq!(list(DeploymentFilter { app_name: Some("shop".to_owned()), ..any() }).await?, [running.id]);
    let other = DeploymentFilter { app_name: Some("shop".to_owned()), app_version: version("v2"), ..any() };
    assert_eq!(list(other).await?, []);
    assert_eq!(list(DeploymentFilter { query: Some("SHO".to_owned()), ..any() }).await?, [running.id]);
    assert_eq!(
        list(DeploymentFilter { query: Some(deployment(2).id.to_string()), ..any() }).await?,
        [deployment(2).id]
    );
    assert_eq!(apps.deployments.running(10).await?, [running]);
    assert_eq!(apps.deployments.unbuilt(&[deployment(1).id, deployment(2).id]).await?, [deployment(2).id]);
    Ok(())
}
