//! Tests of the stored versions of profiles: loading, cleanup and keys.

use super::*;

#[tokio::test]
async fn bytes_without_a_row_go_after_an_hour_and_spent_versions_at_once() {
    let (mut rows, mut blobs) = (MockProfileRepository::new(), MockBlobStore::new());
    rows.expect_spent().times(1).returning(|before, unseen| {
        assert_eq!((before, unseen), (NOON - Duration::minutes(10), 5));
        Ok(vec![(id(1), version(1))])
    });
    rows.expect_spent().returning(|_, _| Ok(Vec::new()));
    rows.expect_forget().times(1).withf(|id| *id == version(1)).returning(|_| Ok(()));
    let blob = |n| ProfileVersion::blob(id(1), version(n));
    blobs.expect_list().returning(move |prefix| {
        assert_eq!(prefix, "profiles/");
        let old = NOON - Duration::minutes(61);
        Ok(vec![
            (blob(2), old),
            (blob(3), old),
            (blob(4), NOON - Duration::minutes(59)),
            ("profiles/something/else".to_owned(), old),
        ])
    });
    rows.expect_known().withf(|ids| ids == [version(2), version(3)]).returning(|_| Ok(vec![version(3)]));
    let gone = Arc::new(Mutex::new(Vec::new()));
    let of = gone.clone();
    blobs.expect_delete().returning(move |key| {
        of.lock().push(key.to_owned());
        Ok(())
    });
    let stored = Ports::stored(rows, blobs);
    let profiles = Profiles::new(stored, Arc::new(FixedClock::default()), Arc::new(CountingIds::default()), 7);
    profiles.clear().await.expect("cleared");
    assert_eq!(*gone.lock(), [blob(1), blob(2)]);
}

#[tokio::test]
async fn a_browser_gets_the_version_it_is_to_have_or_a_reason() {
    let source = |found: bool, there: bool| {
        let (mut rows, mut blobs) = (MockProfileRepository::new(), MockBlobStore::new());
        rows.expect_used().times(1).returning(|_, _| Ok(()));
        rows.expect_version().returning(move |profile, id| {
            let key = PlainSealer::stream_key(&ProfileVersion::place(profile, id));
            let row = ProfileVersion { id, profile, session: session_id(9), based_on: None, key, created_at: NOON };
            Ok(found.then_some(row))
        });
        blobs.expect_get().returning(move |_| Ok(there.then(|| bytes("state"))));
        Ports::stored(rows, blobs)
    };
    let archive = source(true, true).archive(&loaded(false)).await.expect("read").expect("a version");
    assert_eq!(part(archive).await.expect("a part").expect("read"), "state");
    let never = LoadedProfile { version: None, ..loaded(false) };
    assert!(source(true, true).archive(&never).await.expect("read").is_none());
    for (found, there) in [(false, true), (true, false)] {
        let missing = source(found, there).archive(&loaded(false)).await;
        assert!(matches!(missing, Err(OperationError::Missing(_))));
    }
    let (mut rows, mut blobs) = (MockProfileRepository::new(), MockBlobStore::new());
    rows.expect_used().returning(|_, _| Ok(()));
    rows.expect_version().returning(|profile, id| {
        Ok(Some(ProfileVersion { id, profile, session: session_id(9), based_on: None, key: vec![0], created_at: NOON }))
    });
    blobs.expect_get().returning(|_| Ok(Some(bytes("state"))));
    let moved = Ports::stored(rows, blobs).archive(&loaded(false)).await;
    assert!(matches!(moved, Err(OperationError::Failed(_))), "its key does not belong here");
}

#[tokio::test]
async fn keys_that_cannot_be_opened_keep_no_other_from_being_sealed_anew() {
    let version = |n: u128| ProfileVersion {
        id: version(n),
        profile: id(1),
        session: session_id(9),
        based_on: None,
        key: if n <= 150 { vec![1] } else { PlainSealer::stream_key(&ProfileVersion::place(id(1), version(n))) },
        created_at: NOON,
    };
    let old: Arc<Mutex<Vec<ProfileVersion>>> = Arc::new(Mutex::new((1..=152).map(version).collect()));
    let mut rows = MockProfileRepository::new();
    let of = old.clone();
    rows.expect_sealed_with_other_key().returning(move |key, max| {
        assert_eq!(key, PlainSealer::KEY);
        Ok(of.lock().iter().take(max as usize).cloned().collect())
    });
    let of = old.clone();
    rows.expect_reseal().times(2).returning(move |id, current, next| {
        let mut old = of.lock();
        assert!(old.iter().any(|row| row.id == id && row.key == current), "what was read is replaced");
        assert_eq!(next, PlainSealer::stream_key(&ProfileVersion::place(super::id(1), id)));
        old.retain(|row| row.id != id);
        Ok(())
    });
    let (clock, ids) = (Arc::new(FixedClock::default()), Arc::new(CountingIds::default()));
    let profiles = Profiles::new(Ports::stored(rows, MockBlobStore::new()), clock, ids, 10);
    let resealed = profiles.reseal(&PlainSealer).await.expect("the others are done");
    assert_eq!((resealed.done, resealed.failed.len()), (2, 150));
    let place = ProfileVersion::place(id(1), super::version(7));
    assert_eq!(resealed.failed.get(&place), Some(&SealError::Damaged));
}
