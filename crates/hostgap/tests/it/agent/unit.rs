//! The unit of systemd in `deploy`.

use std::process::Command;

use super::HOSTGAP;

const UNIT: &str = include_str!("../../../../../deploy/hostgap-agent.service");

/// The lines of a section.
fn section(name: &str) -> Vec<&'static str> {
    let mut lines = UNIT.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    lines.by_ref().take_while(|line| !line.starts_with('[')).collect()
}

/// With systemd's defaults an agent that ended at once five times in ten seconds, since another one kept the network or
/// a file was not there yet, was never started again.
#[test]
fn systemd_never_gives_the_agent_up() {
    let (unit, service) = (section("Unit"), section("Service"));
    assert!(unit.contains(&"StartLimitIntervalSec=0"), "{unit:?}");
    assert!(service.contains(&"Restart=always"), "{service:?}");
    let start =
        service.iter().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/hostgap ")).unwrap();
    let arguments: Vec<&str> = start.split(' ').collect();
    assert!(arguments.contains(&"--wait"), "{start}");
    // Its arguments are the program's: it says its help only if it knows those before.
    let help = Command::new(HOSTGAP).args(arguments).arg("--help").output().unwrap();
    assert!(help.status.success(), "{help:?}");
}
