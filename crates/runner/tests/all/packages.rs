//! Tests of the checks of uploaded archives.

use bytes::Bytes;
use casement_domain::deployment::{PackageArchives as _, PackagePath};
use casement_domain::session_operation::OperationError;
use casement_runner::Packages;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::support::{archive, checksum};

async fn inspect(archive: &[u8], entrypoint: &str) -> Result<(u64, String, Vec<u8>), OperationError> {
    let directory = tempfile::tempdir().unwrap();
    let packages = Packages::new(directory.path().to_owned());
    let parts: Vec<_> = archive.chunks(1000).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
    let entrypoint = PackagePath::parse(entrypoint).unwrap();
    let looked = packages.inspect(&entrypoint, stream::iter(parts).boxed()).await?;
    let content: Vec<Bytes> = looked.content.try_collect().await?;
    Ok((looked.size_bytes, looked.checksum, content.concat()))
}

#[tokio::test]
async fn a_valid_package_is_returned_unchanged() {
    let made = archive(&[("app/main.py", "x = 1"), ("README", "")]);
    let (size, sum, content) = inspect(&made, "app/main.py").await.unwrap();
    assert_eq!((size, sum, content), (made.len() as u64, checksum(&made), made));
}

#[tokio::test]
async fn an_invalid_package_names_the_field_and_the_reason() {
    let refused = async |archive: Vec<u8>, entrypoint: &str| match inspect(&archive, entrypoint).await {
        Err(OperationError::Invalid(invalid)) => invalid.to_string(),
        other => panic!("{other:?}"),
    };
    let good = archive(&[("main.py", "x = 1")]);
    for (made, why) in [
        (archive(&[("../main.py", "")]), "leads out"),
        (archive(&[("/main.py", "")]), "absolute"),
        (archive(&[("main.py", ""), ("main.py", "")]), "twice"),
        (good[..good.len() - 30].to_vec(), "not a readable ZIP"),
        (b"plain text".to_vec(), "not a readable ZIP"),
        (Vec::new(), "not a readable ZIP"),
    ] {
        let output = refused(made, "main.py").await;
        assert!(output.contains("file") && output.contains(why), "{output}");
    }
    let names: Vec<String> = (0..60_000).map(|number| number.to_string()).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert!(refused(archive(&many), "1").await.contains("more than 50000 entries"));
    assert!(refused(good, "other.py").await.contains("entrypoint_rel_path"));
}
