//! Tests of what a program in a sandbox can see, reach and do.

use std::net::{Ipv4Addr, TcpListener};

use casement_sandbox::{File, Network, NetworkSetup, StartError};

use crate::support::{Place, processes, remains};

#[tokio::test]
async fn a_program_runs_and_its_output_can_be_read() -> anyhow::Result<()> {
    let place = Place::new()?;
    assert_eq!(place.output("hello", "echo hello; echo error >&2; exit 3").await?, "hello\nerror\n");
    Ok(())
}

#[tokio::test]
async fn nothing_of_the_host_is_visible() -> anyhow::Result<()> {
    let place = Place::new()?;
    let secret = place.dir.path().join("secret");
    std::fs::write(&secret, "of the host")?;
    let looks = format!(
        "for f in {} /root /sys /boot /srv /mnt /etc/shadow /etc/ssh /var/lib /var/run/docker.sock",
        secret.display()
    );
    let script =
        format!("{looks}; do test -e $f && echo sees $f; done; echo home: $(ls -A /home); echo tmp: $(ls -A /tmp)");
    assert_eq!(place.output("a", &script).await?, "home: casement\ntmp:\n");
    Ok(())
}

/// Debian's npm reads its configuration there, which may contain a key.
#[tokio::test]
async fn configuration_of_the_host_below_usr_is_not_visible() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = "for f in /usr/local/etc /usr/etc; do ls -A $f 2>/dev/null; touch $f/x 2>/dev/null && echo writes $f; done; true";
    assert_eq!(place.output("a", script).await?, "");
    Ok(())
}

#[tokio::test]
async fn processes_of_the_host_and_of_other_sandboxes_are_not_visible() -> anyhow::Result<()> {
    let place = Place::new()?;
    place.host.start(place.script("other", "exec sleep 1000")).await?;
    let script = "for p in /proc/[0-9]*; do cat $p/comm; done | sort | uniq -c | tr -s ' '";
    // The script and its pipe, the supervisor, and bubblewrap's reaper.
    let seen = place.output("a", script).await?;
    let strange = |line: &&str| {
        !["bwrap", "supervisor", "sh", "program", "cat", "sort", "uniq", "tr"].iter().any(|name| line.ends_with(name))
    };
    assert_eq!(seen.lines().filter(strange).collect::<Vec<_>>(), Vec::<&str>::new(), "{seen}");
    Ok(())
}

#[tokio::test]
async fn there_is_no_capability_and_no_way_to_get_one() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = "grep -E '^(Cap|NoNewPrivs|Uid|Groups)' /proc/self/status | tr -d '\t '";
    let none = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|set| format!("Cap{set}:0000000000000000\n")).concat();
    let expected = format!("Uid:1000100010001000\nGroups:{}\n{none}NoNewPrivs:1\n", "");
    let found = place.output("a", script).await?;
    // An ordinary user cannot drop supplementary groups; inside they are shown as nogroup.
    let found: String = found
        .lines()
        .map(|l| if l.starts_with("Groups:") { "Groups:\n".to_owned() } else { format!("{l}\n") })
        .collect();
    assert_eq!(found, expected);
    Ok(())
}

#[tokio::test]
async fn the_host_user_is_never_root() -> anyhow::Result<()> {
    let place = Place::new()?;
    let sandbox = place.host.start(place.script("a", "exec sleep 1000")).await?;
    for pid in sandbox.pids().await {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        assert!(!uids.split_whitespace().any(|uid| uid == "0"), "{pid}: {uids}");
    }
    Ok(())
}

/// Other sockets, such as those to the host of a virtual machine, are not confined by a network namespace.
#[tokio::test]
async fn only_sockets_of_the_sandboxs_own_network_exist() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = r#"perl -MErrno -e '
        my ($socket, $pair, $ring, $other) = (SOCKET, PAIR, 425, OTHER);
        sub refused { syscall(shift, @_) < 0 && $!{EPERM} }
        for my $family (1, 2, 10, 16) { print "family $family is refused
" if refused($socket, $family, 2, 0) }
        for my $family (0, 4, 15, 17, 21, 30, 31, 38, 40, 43, 44, 0xffff) {
            print "family $family is there
" unless refused($socket, $family, 1, 0) && refused($pair, $family, 1, 0, "x" x 8);
            print "family $family is there by the other ABI
" unless refused($other | $socket, $family, 1, 0);
        }
        print "there are rings
" unless refused($ring, 1, "\0" x 128) && refused($other | $ring, 1, "\0" x 128);
        print "looked
"'"#;
    // If system calls have only one ABI, the numbers of the other ABI are the same.
    let numbers = if cfg!(target_arch = "x86_64") { ["41", "53", "0x40000000"] } else { ["198", "199", "0"] };
    let script = ["SOCKET", "PAIR", "OTHER"]
        .iter()
        .zip(numbers)
        .fold(script.to_owned(), |script, (name, n)| script.replace(name, n));
    assert_eq!(place.output("a", &script).await?, "looked\n");
    Ok(())
}

/// A descriptor of such a socket, sent to the server in a message, would block the thread that drops it.
#[tokio::test]
async fn no_socket_can_be_made_to_linger() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = r#"perl -MErrno -MSocket -e '
        my ($linger, $forever, $on) = (13, pack("ii", 1, 1 << 30), pack("i", 1));
        sub refused { syscall(shift, @_) < 0 && $!{EPERM} }
        for my $family (AF_INET, AF_UNIX) {
            socket(S, $family, SOCK_STREAM, 0);
            print "$family lingers\n" if setsockopt(S, SOL_SOCKET, $linger, $forever) || !$!{EPERM};
            for my $number (NUMBERS) {
                print "$family lingers by $number\n" unless refused($number, fileno(S), 1, $linger, $forever, 8)
                    && refused($number, fileno(S), 1 | 1 << 32, $linger | 1 << 32, $forever, 8);
            }
            print "$family cannot be kept alive\n" unless setsockopt(S, SOL_SOCKET, SO_KEEPALIVE, $on);
            print "$family does not tell\n" unless getsockopt(S, SOL_SOCKET, $linger);
        }
        socket(S, AF_INET, SOCK_STREAM, 0);
        print "another level is refused\n" unless setsockopt(S, IPPROTO_TCP, $linger, "reno");
        print "looked\n"'"#;
    // Includes the numbers of the other ABI if system calls have two.
    let numbers = if cfg!(target_arch = "x86_64") { "54, 541, 0x40000000 | 54, 0x40000000 | 541" } else { "208" };
    assert_eq!(place.output("a", &script.replace("NUMBERS", numbers)).await?, "looked\n");
    Ok(())
}

#[tokio::test]
async fn the_network_is_loopback_alone_and_not_that_of_the_host() -> anyhow::Result<()> {
    let place = Place::new()?;
    let host = TcpListener::bind("127.0.0.1:0")?;
    let dial = format!(
        "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(PeerAddr => \"127.0.0.1:{}\") ? 1 : 0'",
        host.local_addr()?.port()
    );
    let script = format!("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route; {dial}");
    assert_eq!(place.output("a", &script).await?, "lo\n0");
    Ok(())
}

/// A sandbox has no more rights over a prepared network than over any other network.
#[tokio::test]
async fn a_prepared_network_gives_no_capability_and_ends_completely() -> anyhow::Result<()> {
    let place = Place::new()?;
    let prepare = "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start; exec \"$@\"";
    let network = Network {
        args: vec!["-c".to_owned(), prepare.to_owned()],
        setup: NetworkSetup::Listen(Ipv4Addr::LOCALHOST.into()),
    };
    let script = "grep Cap /proc/self/status | tr -dc '1-9'; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; \
        perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1:443\") ? 1 : 0'; \
        (echo 1 >/proc/sys/net/ipv4/ip_unprivileged_port_start) 2>/dev/null || echo no right; \
        unshare --user --map-root-user sh -c '(echo 1 >/proc/sys/net/ipv4/ip_unprivileged_port_start)' 2>/dev/null || echo nor so";
    let mut spec = place.script("a", script);
    spec.network = Some(network.clone());
    let output = place.output_of(spec).await?;
    assert_eq!(output, "lo\n1no right\nnor so\n");
    let mut spec = place.script("b", "exec sleep 1000");
    spec.network = Some(network);
    let sandbox = place.host.start(spec).await?;
    place.host.end("b").await?;
    assert_eq!(remains(&sandbox.dir), Vec::<String>::new());
    let mut spec = place.script("c", "true");
    spec.network = Some(Network {
        args: vec!["-c".to_owned(), "echo no way >&2; exit 1".to_owned()],
        setup: NetworkSetup::Listen(Ipv4Addr::LOCALHOST.into()),
    });
    match place.host.start(spec).await {
        Err(StartError::Refused { output, .. }) => assert_eq!(output, "no way"),
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}

#[tokio::test]
async fn a_browser_can_make_its_own_sandbox_inside() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = "unshare --user --map-root-user --pid --net --fork sh -c 'echo $$ in $(id -u)'";
    assert_eq!(place.output("a", script).await?, "1 in 0\n");
    Ok(())
}

#[tokio::test]
async fn the_system_and_the_given_files_cannot_be_changed() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut spec = place.script(
        "a",
        "cat /run/casement/in/a.json /etc/some/managed/b.json; for f in /x /usr/x /etc/x /dev/x /run/casement/x \
         /run/casement/in/a.json /run/casement/egress/x /etc/passwd /run/casement/program /etc/some/managed/b.json; do \
         (echo x > $f) 2>/dev/null && echo changed $f; done; mv /run/casement /run/gone 2>/dev/null && echo moved; \
         rm -f /run/casement/in/a.json 2>/dev/null && echo removed; for d in /tmp $HOME /dev/shm /run; do \
         (echo x > $d/x) || echo cannot write $d; done",
    );
    for (path, content) in [("/run/casement/in/a.json", "one "), ("/etc/some/managed/b.json", "two\n")] {
        spec.files.push(File { inside: path.into(), content: content.into() });
    }
    assert_eq!(place.output_of(spec).await?, "one two\n");
    Ok(())
}

#[tokio::test]
async fn a_given_file_takes_the_place_of_one_that_every_sandbox_has() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut spec = place.script("a", "cat /etc/hosts");
    spec.files.push(File { inside: "/etc/hosts".into(), content: b"127.0.0.1 given\n".to_vec() });
    assert_eq!(place.output_of(spec).await?, "127.0.0.1 given\n");
    Ok(())
}

#[tokio::test]
async fn the_environment_is_exactly_the_given_one() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut spec = place.script("a", "env | grep -v ^PWD= | sort");
    spec.env.push(("ASKED".to_owned(), "for".to_owned()));
    let expected = "ASKED=for\nHOME=/home/casement\nLANG=C.UTF-8\nPATH=/usr/local/bin:/usr/bin:/bin\nUSER=casement\n";
    assert_eq!(place.output_of(spec).await?, expected);
    Ok(())
}

/// Descriptors that the starter itself inherited are replaced by `/dev/null`.
#[tokio::test]
async fn only_the_given_descriptors_are_open() -> anyhow::Result<()> {
    let place = Place::new()?;
    let list = "opendir D, q(/proc/self/fd); print join q( ), sort grep { /\\d/ && readlink(qq(/proc/self/fd/$_)) ne \
        q(/dev/null) } readdir D";
    let mut spec = place.script("a", &format!("exec perl -e '{list}'"));
    spec.sockets = 2;
    // 5 is the directory that perl reads.
    assert_eq!(place.output_of(spec).await?, "1 2 3 4 5");
    Ok(())
}

#[tokio::test]
async fn secrets_of_a_sandbox_are_on_no_command_line() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut spec = place.script("a", "exec sleep 1000");
    spec.env.push(("KEY".to_owned(), "secret-in-the-environment".to_owned()));
    spec.files.push(File { inside: "/run/casement/in/key".into(), content: b"secret-in-a-file".to_vec() });
    assert!(!format!("{spec:?} {:?}", spec.files).contains("secret-in"));
    place.host.start(spec).await?;
    let shows =
        |file: &std::path::Path| std::fs::read(file).is_ok_and(|b| String::from_utf8_lossy(&b).contains("secret-in"));
    assert_eq!(processes(|proc| shows(&proc.join("cmdline"))), Vec::<i32>::new());
    Ok(())
}

#[tokio::test]
async fn each_start_has_its_own_machine_id_and_an_empty_resolv_conf() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = "cat /etc/machine-id /etc/resolv.conf; hostname";
    let (one, two) = (place.output("a", script).await?, place.output("a", script).await?);
    assert_ne!(one, two);
    assert!(one.ends_with("\nsandbox\n") && one.len() == 32 + 9, "{one}");
    Ok(())
}
