//! Profiles: names, versions, and the references that prevent a deletion.

use casement_domain::access::Scope;
use casement_domain::browser::{Browser, Shape};
use casement_domain::name::SlugName;
use casement_domain::page::Page;
use casement_domain::permission::Permissions;
use casement_domain::pool::{ImmediateLease, PoolRepository as _, PoolStored, WaitQueue as _};
use casement_domain::profile::{
    LoadedProfile, Profile, ProfileDeleted, ProfileFilter, ProfileRenamed, ProfileRepository as _, ProfileStored,
    ProfileVersion, Saved, VersionStored,
};
use casement_domain::project::{Project, ProjectDeleted, ProjectRepository as _};
use casement_domain::sealing::KeyId;
use casement_domain::session::{Created, IdOrName, Session, SessionRepository as _, SessionState};
use casement_domain::testing::{self, NOON, PlainSealer, project_id, session_id};
use casement_domain::{OrganizationId, ProfileId, ProfileVersionId, ProjectId, Replaced};
use casement_postgres::{PgProfiles, PgProjects};
use pretty_assertions::assert_eq;
use time::Duration;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, lease, seconds, warming};

fn id(n: u32) -> ProfileId {
    ProfileId::from_ulid(Ulid::from_parts(13, u128::from(n)))
}

fn version_id(n: u32) -> ProfileVersionId {
    ProfileVersionId::from_ulid(Ulid::from_parts(14, u128::from(n)))
}

fn profile(n: u32, name: &str) -> Profile {
    Profile { created_at: seconds(i64::from(n)), ..testing::profile(id(n), name) }
}

fn slug(name: &str) -> SlugName {
    SlugName::parse(name).expect("a name")
}

/// The scope of a request without a project.
fn unscoped() -> Scope {
    Scope { unscoped: true, ..testing::scope() }
}

fn scoped() -> Scope {
    Scope { unscoped: false, ..testing::scope() }
}

fn of(project: ProjectId) -> Scope {
    Scope {
        project: Project { id: project, ..testing::project() },
        unscoped: false,
        organization_wide: true,
        permissions: Permissions::ALL,
    }
}

async fn stored(world: &World) -> Result<PgProfiles, Fault> {
    let profiles = PgProfiles::new(world.db.database().clone());
    for (n, name) in [(1, "Login"), (2, "other"), (3, "third")] {
        assert_eq!(profiles.create(&profile(n, name), 10).await?, ProfileStored::Yes);
    }
    Ok(profiles)
}

async fn listed(profiles: &PgProfiles, scope: &Scope, filter: &ProfileFilter) -> Result<Vec<ProfileId>, Fault> {
    let page = profiles.list(scope, filter, Page { limit: 20, offset: 0 }).await?;
    Ok(page.items.into_iter().map(|one| one.id).collect())
}

fn named(name: &str) -> ProfileFilter {
    ProfileFilter { name: Some(name.to_owned()), query: None }
}

fn query(text: &str) -> ProfileFilter {
    ProfileFilter { name: None, query: Some(text.to_owned()) }
}

#[tokio::test]
async fn a_profile_is_found_by_id_and_name_in_its_project_alone() -> TestResult {
    let world = World::new().await?;
    let profiles = stored(&world).await?;
    let others = of(ProjectId::from_ulid(Ulid::from_parts(1, 99)));
    let by_name = |name: &str| IdOrName::Name(name.to_owned());
    assert_eq!(profiles.find(&scoped(), &IdOrName::Id(id(1))).await?, Some(profile(1, "Login")));
    assert_eq!(profiles.find(&unscoped(), &by_name("LOGIN")).await?, Some(profile(1, "Login")));
    assert_eq!(profiles.find(&scoped(), &by_name("lógin")).await?, Some(profile(1, "Login")));
    for pattern in ["log", "%", "_ogin", "' OR 1=1 --"] {
        assert_eq!(profiles.find(&unscoped(), &by_name(pattern)).await?, None, "{pattern}");
    }
    assert_eq!(profiles.find(&others, &IdOrName::Id(id(1))).await?, None);
    assert_eq!(profiles.find(&others, &by_name("login")).await?, None);
    assert_eq!(profiles.create(&profile(4, "LOGIN"), 10).await?, ProfileStored::NameTaken);
    let stray = Profile { project: Some(others.project_id()), ..profile(5, "x") };
    assert_eq!(profiles.create(&stray, 10).await?, ProfileStored::ProjectGone);
    let refused = profiles.create(&profile(6, "x"), 3).await?;
    assert!(matches!(refused, ProfileStored::LimitExceeded(limit) if limit.used == 3), "{refused:?}");
    for (n, name) in [(7, None), (8, None)] {
        assert_eq!(profiles.create(&Profile { name, ..profile(n, "x") }, 10).await?, ProfileStored::Yes);
    }
    Ok(())
}

#[tokio::test]
async fn a_list_is_filtered_by_the_whole_name_or_a_part_of_name_or_id_and_cut_into_pages() -> TestResult {
    let world = World::new().await?;
    let profiles = stored(&world).await?;
    let everything = ProfileFilter::default();
    for scope in [scoped(), unscoped()] {
        assert_eq!(listed(&profiles, &scope, &everything).await?, [id(3), id(2), id(1)]);
        assert_eq!(listed(&profiles, &scope, &named("LÓGIN")).await?, [id(1)]);
        assert_eq!(listed(&profiles, &scope, &named("logi")).await?, []);
        assert_eq!(listed(&profiles, &scope, &query("OTH")).await?, [id(2)]);
        assert_eq!(listed(&profiles, &scope, &query("th")).await?, [id(3), id(2)]);
        let (whole, part) = (id(2).to_string().to_uppercase(), id(2).to_string()[20..].to_owned());
        assert_eq!(listed(&profiles, &scope, &query(&whole)).await?, [id(2)]);
        assert_eq!(listed(&profiles, &scope, &query(&part)).await?, [id(2)]);
        for nothing in ["%", "_", "o_her", "' OR 1=1 --", "\\"] {
            assert_eq!(listed(&profiles, &scope, &query(nothing)).await?, [], "{nothing}");
        }
        let page = profiles.list(&scope, &everything, Page { limit: 2, offset: 0 }).await?;
        assert_eq!((page.items.len(), page.next_offset), (2, Some(2)));
        let behind = Page::parse(Some(100), Some(i64::MAX)).map_err(|bad| format!("{bad:?}"))?;
        let behind = profiles.list(&scope, &everything, behind).await?;
        assert_eq!((behind.items, behind.next_offset), (Vec::new(), None));
        let page = profiles.list(&scope, &everything, Page { limit: 2, offset: 2 }).await?;
        assert_eq!((page.items, page.next_offset), (vec![profile(1, "Login")], None));
    }
    let others = of(ProjectId::from_ulid(Ulid::from_parts(1, 99)));
    assert_eq!(listed(&profiles, &others, &everything).await?, []);
    Ok(())
}

/// Stores profiles in the default project, and two without a project.
async fn with_legacy(world: &World) -> Result<(PgProfiles, Scope), Fault> {
    let profiles = PgProfiles::new(world.db.database().clone());
    let projects = PgProjects::new(world.db.database().clone());
    let default = projects.default_of(testing::organization_id()).await?;
    let scope = Scope { project: default, unscoped: true, organization_wide: true, permissions: Permissions::ALL };
    let own = |n, name| Profile { project: Some(scope.project_id()), ..profile(n, name) };
    let legacy = |n, name| Profile { project: None, ..profile(n, name) };
    assert_eq!(profiles.create(&legacy(1, "old"), 10).await?, ProfileStored::Yes);
    assert_eq!(profiles.create(&legacy(2, "both"), 10).await?, ProfileStored::Yes);
    assert_eq!(profiles.create(&own(3, "new"), 10).await?, ProfileStored::Yes);
    // As before the two namespaces were joined.
    let mut both = own(4, "free");
    assert_eq!(profiles.create(&both, 10).await?, ProfileStored::Yes);
    world.db.execute("UPDATE profiles SET name = 'BOTH' WHERE name = 'free'").await?;
    both.name = Some(slug("BOTH"));
    Ok((profiles, scope))
}

#[tokio::test]
async fn what_is_of_no_project_is_seen_by_who_names_none_and_comes_second() -> TestResult {
    let world = World::new().await?;
    let (profiles, unscoped) = with_legacy(&world).await?;
    let scoped = Scope { unscoped: false, ..unscoped.clone() };
    let everything = ProfileFilter::default();
    assert_eq!(listed(&profiles, &unscoped, &everything).await?, [id(4), id(3), id(2), id(1)]);
    assert_eq!(listed(&profiles, &scoped, &everything).await?, [id(4), id(3)]);
    assert_eq!(listed(&profiles, &unscoped, &named("both")).await?, [id(4)], "the project's own alone");
    assert_eq!(listed(&profiles, &unscoped, &named("OLD")).await?, [id(1)]);
    assert_eq!(listed(&profiles, &scoped, &named("old")).await?, []);
    assert_eq!(listed(&profiles, &unscoped, &query("o")).await?, [id(4), id(2), id(1)]);
    let page = profiles.list(&unscoped, &everything, Page { limit: 2, offset: 1 }).await?;
    assert_eq!(page.items.iter().map(|one| one.id).collect::<Vec<_>>(), [id(3), id(2)]);
    assert_eq!(page.next_offset, Some(3));

    let find = async |scope: &Scope, which| Ok::<_, Fault>(profiles.find(scope, &which).await?.map(|one| one.id));
    assert_eq!(find(&unscoped, IdOrName::Name("Both".to_owned())).await?, Some(id(4)));
    assert_eq!(find(&unscoped, IdOrName::Name("old".to_owned())).await?, Some(id(1)));
    assert_eq!(find(&unscoped, IdOrName::Id(id(2))).await?, Some(id(2)));
    assert_eq!(find(&scoped, IdOrName::Id(id(2))).await?, None);
    assert_eq!(find(&scoped, IdOrName::Name("old".to_owned())).await?, None);
    let strangers = Scope {
        project: Project {
            organization: OrganizationId::from_ulid(Ulid::from_parts(1, 77)),
            ..unscoped.project.clone()
        },
        unscoped: true,
        organization_wide: true,
        permissions: Permissions::ALL,
    };
    assert_eq!(find(&strangers, IdOrName::Id(id(2))).await?, None, "of another organization");

    // Names are unique across both halves, in either direction.
    let own = Profile { project: Some(unscoped.project_id()), ..profile(5, "OLD") };
    assert_eq!(profiles.create(&own, 10).await?, ProfileStored::NameTaken);
    assert_eq!(profiles.rename(id(3), &slug("Old"), NOON).await?, ProfileRenamed::NameTaken);
    assert_eq!(profiles.rename(id(1), &slug("NEW"), NOON).await?, ProfileRenamed::NameTaken);
    assert_eq!(profiles.create(&Profile { project: None, ..profile(6, "new") }, 10).await?, ProfileStored::NameTaken);
    Ok(())
}

#[tokio::test]
async fn a_rename_keeps_names_unique_and_a_deleted_profile_holds_none() -> TestResult {
    let world = World::new().await?;
    let profiles = stored(&world).await?;
    assert_eq!(profiles.rename(id(1), &slug("OTHER"), NOON).await?, ProfileRenamed::NameTaken);
    assert_eq!(profiles.rename(id(9), &slug("x"), NOON).await?, ProfileRenamed::NotFound);
    let at = NOON + Duration::hours(1);
    let ProfileRenamed::Yes(renamed) = profiles.rename(id(1), &slug("LOGIN"), at).await? else {
        return Err("its own name in another case is free".into());
    };
    assert_eq!((renamed.name, renamed.updated_at), (Some(slug("LOGIN")), at));
    assert_eq!(profiles.delete(id(1), at).await?, ProfileDeleted::Yes);
    assert_eq!(profiles.delete(id(1), at).await?, ProfileDeleted::NotFound);
    assert_eq!(profiles.living(id(1)).await?, None);
    assert_eq!(profiles.rename(id(1), &slug("x"), NOON).await?, ProfileRenamed::NotFound);
    assert_eq!(profiles.create(&profile(4, "login"), 10).await?, ProfileStored::Yes);
    assert_eq!(profiles.of_ids(&[id(1), id(4), id(9)]).await?.len(), 2, "sessions show what they had");

    profiles.used(id(4), seconds(9)).await?;
    profiles.used(id(4), seconds(8)).await?;
    assert_eq!(profiles.living(id(4)).await?.and_then(|one| one.last_used_at), Some(seconds(9)));
    Ok(())
}

/// An active session that started from that version and saves to the first profile.
async fn saving(world: &World, n: u32, from: Option<ProfileVersionId>) -> Result<Session, Fault> {
    let mut session = testing::session(n);
    session.shape.profile = Some(LoadedProfile { id: id(1), version: from, save_changes: true });
    let browser = session.browser.ok_or("it has one")?;
    let row = Browser { id: browser, session: Some(session.id), shape: session.shape.clone(), ..warming(n) };
    let row = Browser { state: casement_domain::browser::BrowserState::Leased, pool: None, ..row };
    let stored = world.sessions.create(testing::organization_id(), &session, Some(row)).await?;
    assert_eq!((stored, session.state), (Created::Yes, SessionState::Active));
    Ok(session)
}

fn version(n: u32, session: &Session) -> ProfileVersion {
    ProfileVersion {
        id: version_id(n),
        profile: id(1),
        session: session.id,
        based_on: session.shape.profile.and_then(|profile| profile.version),
        key: PlainSealer::stream_key(&ProfileVersion::place(id(1), version_id(n))),
        created_at: seconds(i64::from(n)),
    }
}

#[tokio::test]
async fn the_last_to_end_wins_and_what_it_had_not_seen_is_stored() -> TestResult {
    let world = World::new().await?;
    let profiles = stored(&world).await?;
    let plain = Saved { unseen: None, pools: Vec::new() };
    let first = saving(&world, 1, None).await?;
    assert_eq!(profiles.save(&version(1, &first)).await?, VersionStored::Yes(plain.clone()));
    assert_eq!(profiles.save(&version(9, &first)).await?, VersionStored::NotWanted, "it has nothing more to save");
    let current = profiles.living(id(1)).await?.ok_or("it lives")?;
    assert_eq!((current.version, current.updated_at), (Some(version_id(1)), seconds(1)));

    // Two sessions that started from the same version.
    let (second, third) = (saving(&world, 2, current.version).await?, saving(&world, 3, current.version).await?);
    assert_eq!(world.sessions.find(second.id).await?, Some(second.clone()), "the profile stands in its row");
    assert_eq!(profiles.save(&version(2, &second)).await?, VersionStored::Yes(plain));
    let unseen = Saved { unseen: Some(version_id(2)), pools: Vec::new() };
    assert_eq!(profiles.save(&version(3, &third)).await?, VersionStored::Yes(unseen));
    assert_eq!(profiles.living(id(1)).await?.and_then(|one| one.version), Some(version_id(3)));
    assert_eq!(profiles.version(id(1), version_id(2)).await?, Some(version(2, &second)));
    assert_eq!(profiles.version(id(2), version_id(2)).await?, None, "it is another profile's");

    // The first version was replaced by a session that had loaded it, the second by one that had not.
    assert_eq!(profiles.spent(seconds(2), 5).await?, [], "somebody may be starting with it");
    assert_eq!(profiles.spent(seconds(60), 5).await?, [(id(1), version_id(1))]);
    assert_eq!(profiles.spent(seconds(60), 0).await?, [(id(1), version_id(1)), (id(1), version_id(2))]);
    profiles.forget(version_id(1)).await?;
    assert_eq!(profiles.known(&[version_id(1), version_id(2), version_id(3)]).await?.len(), 2);

    // A session that ends after the deletion of its profile saves nothing, and all versions can be deleted.
    let fourth = saving(&world, 4, Some(version_id(3))).await?;
    assert_eq!(profiles.delete(id(1), NOON).await?, ProfileDeleted::Yes);
    assert_eq!(profiles.save(&version(4, &fourth)).await?, VersionStored::NotWanted);
    assert_eq!(profiles.spent(NOON - Duration::days(1), 5).await?.len(), 2);
    for (_, id) in profiles.spent(NOON - Duration::days(1), 5).await? {
        profiles.forget(id).await?;
    }
    Ok(())
}

#[tokio::test]
async fn of_two_that_end_at_once_one_is_current_and_the_other_is_stored() -> TestResult {
    let world = World::new().await?;
    let profiles = stored(&world).await?;
    let sessions = [saving(&world, 1, None).await?, saving(&world, 2, None).await?];
    let (one, two) = (version(1, &sessions[0]), version(2, &sessions[1]));
    let (first, second) = tokio::join!(profiles.save(&one), profiles.save(&two));
    let unseen = |stored| match stored {
        VersionStored::Yes(saved) => Ok(saved.unseen),
        VersionStored::NotWanted => Err("it was to be saved"),
    };
    let current = profiles.living(id(1)).await?.and_then(|one| one.version).ok_or("one is current")?;
    let mut reported = [unseen(first?)?, unseen(second?)?];
    reported.sort();
    let other = if current == one.id { two.id } else { one.id };
    assert_eq!(reported, [None, Some(other)]);
    assert_eq!(profiles.known(&[one.id, two.id]).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn keys_of_versions_are_found_by_the_master_key_that_they_are_sealed_under() -> TestResult {
    let world = World::new().await?;
    let profiles = stored(&world).await?;
    assert_eq!(profiles.keys().await?, []);
    let session = saving(&world, 1, None).await?;
    assert!(matches!(profiles.save(&version(1, &session)).await?, VersionStored::Yes(_)));
    assert_eq!(profiles.keys().await?, [PlainSealer::KEY]);
    assert_eq!(profiles.sealed_with_other_key(PlainSealer::KEY, 10).await?, []);
    let old = profiles.sealed_with_other_key(KeyId(*b"new-key!"), 10).await?;
    assert_eq!(old, [version(1, &session)]);
    let next = [&[KeyId::FORM], b"new-key!".as_slice(), b"rest"].concat();
    profiles.reseal(version_id(1), b"something else", &next).await?;
    assert_eq!(profiles.keys().await?, [PlainSealer::KEY]);
    profiles.reseal(version_id(1), &old[0].key, &next).await?;
    assert_eq!(profiles.keys().await?, [KeyId(*b"new-key!")]);
    assert_eq!(profiles.sealed_with_other_key(KeyId(*b"new-key!"), 10).await?, []);
    Ok(())
}

#[tokio::test]
async fn a_pool_holds_on_to_its_profile_and_follows_it() -> TestResult {
    let world = World::new().await?;
    let profiles = stored(&world).await?;
    let mut pool = testing::pool(2).build();
    let request = |n| Some(LoadedProfile { id: id(n), version: None, save_changes: false });
    pool.config.refresh_on_profile_update = true;
    pool.config.shape.profile = request(9);
    assert_eq!(world.pools.create(testing::organization_id(), &pool, 100).await?, PoolStored::ProfileGone);
    pool.config.shape.profile = request(1);
    assert_eq!(world.pools.create(testing::organization_id(), &pool, 100).await?, PoolStored::Yes);
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(pool.clone()));
    assert_eq!(profiles.delete(id(1), NOON).await?, ProfileDeleted::InUse);

    let browser = Browser { shape: pool.config.shape.clone(), ..warming(1) };
    assert_eq!(world.pools.warm(&browser, pool.generation).await?, Replaced::Yes);
    assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    let outdated = async || {
        let observed = world.pools.observe(pool.id, testing::node_id()).await?;
        Ok::<_, Fault>(observed.idle.iter().map(|browser| browser.outdated).collect::<Vec<_>>())
    };
    assert_eq!(outdated().await?, [false]);
    let saver = saving(&world, 7, None).await?;
    let saved = profiles.save(&version(1, &saver)).await?;
    assert_eq!(saved, VersionStored::Yes(Saved { unseen: None, pools: vec![pool.id] }));
    assert_eq!(outdated().await?, [true], "its profile has a version that it was not started with");

    let take = async || world.wait_queue.take_now(pool.id, &lease(1), NOON).await;
    assert_eq!(take().await?, ImmediateLease::Busy, "nor is it leased any more");
    let current = request(1).map(|loaded| LoadedProfile { version: Some(version(1, &saver).id), ..loaded });
    let shape = Shape { profile: current, ..pool.config.shape.clone() };
    let browser = Browser { shape, ..warming(2) };
    assert_eq!(world.pools.warm(&browser, pool.generation).await?, Replaced::Yes);
    assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    assert_eq!(outdated().await?, [true, false]);
    let ImmediateLease::Leased(leased) = take().await? else { return Err("a browser was idle".into()) };
    assert_eq!(leased.shape.profile, current, "a lease saves nothing");
    let given = LoadedProfile { id: id(2), version: None, save_changes: true };
    assert!(!world.sessions.set_profile(leased.id, given).await?, "it has one");
    let plain = testing::session(8);
    let row = Browser { id: plain.browser.ok_or("it has one")?, session: Some(plain.id), ..warming(8) };
    let row = Browser { state: casement_domain::browser::BrowserState::Leased, pool: None, ..row };
    assert_eq!(world.sessions.create(testing::organization_id(), &plain, Some(row)).await?, Created::Yes);
    assert!(world.sessions.set_profile(plain.id, given).await?);
    assert_eq!(world.sessions.find(session_id(8)).await?.and_then(|found| found.shape.profile), Some(given));
    Ok(())
}

#[tokio::test]
async fn a_project_with_profiles_is_not_deleted() -> TestResult {
    let world = World::new().await?;
    let _ = stored(&world).await?;
    let projects = PgProjects::new(world.db.database().clone());
    let refused = projects.delete(testing::organization_id(), project_id(), NOON).await?;
    let ProjectDeleted::InUse(resources) = refused else { return Err(format!("{refused:?}").into()) };
    assert!(resources.iter().any(|one| one.kind == "profiles" && one.count == 3), "{resources:?}");
    Ok(())
}
