//! Sources that become something to run, and those that do not.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use casement_domain::deployment::{BuildStep, Builder as _};

use crate::support::{Heard, Place};

pub(crate) const PYTHON: &[(&str, &str)] =
    &[("requirements.txt", "kernel==0.80.0\n"), ("main.py", include_str!("apps/main.py"))];
pub(crate) const NODE: &[(&str, &str)] = &[
    ("package.json", r#"{"type":"module","dependencies":{"@onkernel/sdk":"0.78.0"}}"#),
    ("main.ts", include_str!("apps/main.ts")),
    (
        "shout.ts",
        "export enum Loud { Yes = '!' }\nexport const shout = (text: string): string => text.toUpperCase() + Loud.Yes;\n",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_program_is_built_once_and_says_what_it_registers() {
    let (mut place, first) = (Place::new(), Arc::new(Heard::default()));
    let built =
        place.build(PYTHON, "main.py", &first).await.unwrap_or_else(|failed| panic!("{failed}: {}", first.text()));
    let apps: Vec<_> = built.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(apps, ["trials", "second"]);
    assert!(built.apps[0].actions.contains(&"echo".to_owned()), "{:?}", built.apps);
    let again = Arc::new(Heard::default());
    place.again();
    assert_eq!(place.build(PYTHON, "main.py", &again).await.unwrap(), built);
    assert!(again.text().contains("built before"), "{}", again.text());
    assert_eq!(place.gate.asked(), Vec::<String>::new());
}

/// As after an upgrade of the system.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_built_with_another_interpreter_is_not_used_again() {
    let mut place = Place::new();
    let lines = Arc::new(Heard::default());
    place.build(PYTHON, "main.py", &lines).await.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    // Another one, which sandboxes do not see: there the installation fails that this is about.
    let newer = place.config.data_dir.join("python");
    std::fs::write(&newer, "#!/bin/sh\necho cpython-399-x86_64-linux-gnu\n").unwrap();
    std::fs::set_permissions(&newer, std::fs::Permissions::from_mode(0o755)).unwrap();
    place.config.python = newer;
    place.again();
    let lines = Arc::new(Heard::default());
    let failed = place.build(PYTHON, "main.py", &lines).await.unwrap_err();
    assert_eq!(failed.step, BuildStep::Install, "{failed}");
    assert!(!lines.text().contains("built before"), "{}", lines.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_program_is_built_with_its_dependencies() {
    let (place, lines) = (Place::new(), Arc::new(Heard::default()));
    let built =
        place.build(NODE, "main.ts", &lines).await.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    assert_eq!(built.apps.len(), 1);
    assert_eq!(built.apps[0].name, "trials");
    assert!(built.apps[0].actions.contains(&"echo".to_owned()), "{:?}", built.apps);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_cannot_be_loaded_says_why() {
    let (mut place, lines) = (Place::new(), Arc::new(Heard::default()));
    let failed = place
        .build(&[("main.py", "print('so far')\nraise ValueError('not today')\n")], "main.py", &lines)
        .await
        .unwrap_err();
    assert_eq!((failed.step, failed.reason.as_str()), (BuildStep::Load, "main.py: ValueError: not today"));
    assert!(lines.text().contains("so far") && lines.text().contains("line 2"), "{}", lines.text());
    let failed = place.build(&[("main.py", "x = 1\n")], "main.py", &lines).await.unwrap_err();
    assert!(failed.reason.contains("does not import kernel"), "{failed}");

    // What they left is known, although nobody will ever name it. It is not taken from a build that has just used it.
    let here = place.unpacked();
    assert_eq!(here.len(), 2);
    let kept: Vec<String> = place.workshop.kept().await.into_iter().map(|(name, _)| name).collect();
    assert!(here.iter().all(|name| kept.contains(name)), "{here:?} {kept:?}");
    place.workshop.discard(&here[0]).await;
    assert_eq!(place.unpacked(), here);
    place.again();
    place.workshop.discard(&here[0]).await;
    assert_eq!(place.unpacked(), here[1..]);
    let kept = place.workshop.kept().await;
    assert!(kept.iter().all(|(name, _)| *name != here[0]) && kept.iter().any(|(name, _)| *name == here[1]), "{kept:?}");
}
