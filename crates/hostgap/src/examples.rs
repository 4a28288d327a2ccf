//! Examples for the help of every command that has none beside its arguments. They are in one place because most are a
//! sequence of several commands; a test takes each through the command line's own parser.

use clap::Command;

/// Command and text, in the order of the help.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "report",
        "Examples:
  hostgap report results/*/race.jsonl         the tables again, and a page beside each record
  hostgap report --json race.jsonl            for programs; docs/json.md describes it
  hostgap report --html /tmp/race.html race.jsonl
  hostgap report search.json                  a search for settings",
    ),
    (
        "paths",
        "Examples:
  hostgap paths                               what can race here, and why the rest cannot
  hostgap paths --json | jq -r '.paths[] | select(.runnable) | .name'",
    ),
    (
        "tune knobs",
        "Examples:
  hostgap tune knobs                          all of them
  hostgap tune knobs rto                      those with rto in their name
  hostgap tune knobs --json | jq -r '.knobs[].id'",
    ),
    (
        "tune profiles",
        "Examples:
  hostgap tune profiles                       what each is for
  hostgap tune profiles latency               what it sets, what it leaves out, and why",
    ),
    (
        "tune plan",
        "Examples:
  hostgap tune plan latency                   old → new, why, and what it interrupts
  hostgap tune plan --set somaxconn=8192 --netns web
  hostgap doctor --json > findings.json; hostgap tune plan --from-findings findings.json
  hostgap tune plan wan --route 10.0.0.0/8 --json > wan.json",
    ),
    (
        "tune show-commands",
        "Examples:
  hostgap tune show-commands throughput       sysctl, ip, ethtool and tc, to be read or copied
  hostgap tune show-commands --set tcp_slow_start_after_idle=0",
    ),
    (
        "tune apply",
        "Examples:
  hostgap tune apply latency                  undone after 60 s unless it is confirmed
  hostgap tune apply --set somaxconn=8192 --confirm-within 10m
  hostgap tune plan wan --json > wan.json; hostgap tune apply --plan wan.json",
    ),
    (
        "tune status",
        "Examples:
  hostgap tune status
  hostgap tune status --json | jq .standing",
    ),
    (
        "tune confirm",
        "Examples:
  hostgap tune confirm                        from a login that was made after the change
  hostgap tune confirm --same-login           at a console, which does not depend on the network",
    ),
    (
        "tune rollback",
        "Examples:
  hostgap tune rollback
  hostgap tune rollback --discard             keep the settings, and forget the old values",
    ),
    (
        "tune keep",
        "Examples:
  hostgap tune apply latency; hostgap tune confirm; hostgap tune keep
  hostgap tune keep --forget                  the settings stay until the next restart",
    ),
    (
        "doctor",
        "Examples:
  hostgap doctor                              ten seconds of this host, worst findings first
  hostgap doctor --for 60s --netns web
  hostgap doctor --strict --for 1s            exit code 3 if there is a warning
  hostgap doctor --json | jq -r '.findings[] | [.code, .title] | @tsv'
  hostgap collect tree; hostgap doctor --from tree",
    ),
    (
        "explain",
        "Examples:
  hostgap explain                             all findings with their codes
  hostgap explain HG060
  hostgap explain HG060 --json | jq -r '.checks[].remedy'",
    ),
    (
        "collect",
        "Examples:
  hostgap collect tree --for 60s              here; then copy it, and there:
  hostgap doctor --from tree",
    ),
    (
        "lab",
        "Examples:
  hostgap lab up bridge+vxlan                 builds it and prints how to enter it
  hostgap lab list
  hostgap lab down bridge+vxlan",
    ),
    (
        "lab up",
        "Examples:
  hostgap lab up bridge+vxlan
  hostgap lab up host --workload download --body 10m --delay 40ms --loss 0.2% --no-gso
  hostgap lab up ebpf+direct --same-node --body 100,4k
  hostgap lab up --cni ptp.conflist
  hostgap lab up docker --json | jq -r '.client_netns, .urls[]'",
    ),
    (
        "lab down",
        "Examples:
  hostgap lab down bridge+vxlan
  hostgap lab down                            all of them",
    ),
    (
        "lab list",
        "Examples:
  hostgap lab list
  hostgap lab list --json | jq -r '.owners[] | [.id, .state] | @tsv'",
    ),
    (
        "cni conformance",
        "Examples:
  hostgap cni conformance /usr/lib/cni/bridge               all cases, a default configuration
  hostgap cni conformance ./my-plugin --conf 10-my.conflist --path /opt/cni/bin
  hostgap cni conformance /opt/cni/bin/hostgap --attach ebpf
  hostgap cni conformance ./my-plugin --conf my.conf --only del,check-after-add --json | jq -r '.cases[] | [.outcome, .id] | @tsv'
  hostgap cni conformance ./my-plugin --conf my.conf --junit results.xml      for CI
  hostgap cni conformance --list",
    ),
    (
        "agent",
        "Examples:
  hostgap agent run --source file:/etc/hostgap/nodes.toml --dry-run
  hostgap agent status
  hostgap agent check",
    ),
    (
        "agent run",
        "Examples:
  hostgap agent run --source kubernetes --kubeconfig /etc/hostgap/kubeconfig --net-config /etc/hostgap/net-conf.json
  hostgap agent run --source etcd:https://192.0.2.9:2379,https://192.0.2.10:2379 --etcd-ca ca.pem --wire eth1
  hostgap agent run --source file:/etc/hostgap/nodes.toml --node a --attach ebpf --listen 127.0.0.1:9475
  hostgap agent run --source kubernetes --wait --listen unix:/run/agent.sock      in a pod
  hostgap agent run --source file:/etc/hostgap/nodes.toml --dry-run       show what it would do",
    ),
    (
        "agent status",
        "Examples:
  hostgap agent status
  hostgap agent status --json | jq -r '.peers | to_entries[] | [.key, .value.why_not // \"reached\"] | @tsv'",
    ),
    (
        "agent check",
        "Examples:
  hostgap agent check
  hostgap agent check --peer node-2
  hostgap agent check --all           who reaches whom; agents run with --listen 0.0.0.0:9475
  hostgap agent check --json | jq -r '.peers | to_entries[] | .key as $node | .value.reasons[] | [$node, .kind, .seen] | @tsv'
  kubectl --namespace kube-system exec daemonset/hostgap -- hostgap agent check",
    ),
    (
        "agent probe",
        "Examples:
  hostgap agent probe /readyz --socket /run/agent.sock",
    ),
    (
        "agent migrate",
        "Examples:
  hostgap agent migrate flannel --network cbr0 --dry-run
  hostgap agent migrate flannel --network cbr0 --attach ebpf
  hostgap agent migrate flannel --network cbr0 --back         flanneld can be started again",
    ),
    (
        "agent down",
        "Examples:
  hostgap agent down
  hostgap agent down --network pods",
    ),
    (
        "clean",
        "Examples:
  hostgap clean
  hostgap clean --json | jq '.cleaned | length'",
    ),
    (
        "cni",
        "Examples:
  hostgap cni install --attach ptp --name pods --subnet 10.244.1.0/24
  hostgap cni uninstall --name pods
  hostgap cni conformance /opt/cni/bin/bridge",
    ),
    (
        "cni install",
        "Examples:
  hostgap cni install --attach ptp --name pods --subnet 10.244.1.0/24 --dry-run
  hostgap cni install --attach ebpf --name pods --subnet 10.244.1.0/24 fd00:244:0:1::/64
  hostgap cni install --from race.jsonl --name pods --subnet 10.244.1.0/24     what won a race
  hostgap cni install --attach ptp --name pods --subnet 10.9.0.0/24 --file 00-pods.conflist",
    ),
    (
        "cni uninstall",
        "Examples:
  hostgap cni uninstall                       all networks of hostgap, then the program
  hostgap cni uninstall --name pods           this one alone
  hostgap cni uninstall --json | jq -r '.attachments[].container_id'",
    ),
    (
        "bpf",
        "Examples:
  hostgap bpf counters                        of all nodes, by reason
  hostgap race --paths ebpf+vxlan --show-commands    a whole node, built by hand",
    ),
    (
        "bpf counters",
        "Examples:
  hostgap bpf counters
  hostgap lab up ebpf+direct; hostgap bpf counters --json | jq '.nodes'",
    ),
    (
        "bpf load",
        "Examples:
  hostgap bpf load --netns node-1 node-1 --wire eth0 --mtu 1500 --pods 10.244.1.0/24,fd00:244:0:1::/64 --cluster 10.244.0.0/16,fd00:244::/48 --gateway 169.254.1.1 --gateway-mac 02:05:00:00:00:00
  hostgap bpf load --netns node-1 node-1 --wire eth0 --mtu 1450 --pods 10.244.1.0/24,fd00:244:0:1::/64 --cluster 10.244.0.0/16,fd00:244::/48 --gateway 169.254.1.1 --gateway-mac 02:05:00:00:00:00 --tunnel 192.168.100.1 --vni 1 --port 8472",
    ),
    (
        "bpf replace",
        "Examples:
  hostgap bpf replace --netns node-1 node-1 --wire eth0 --mtu 1500 --pods 10.244.1.0/24,fd00:244:0:1::/64 --cluster 10.244.0.0/16,fd00:244::/48 --gateway 169.254.1.1 --gateway-mac 02:05:00:00:00:00
  hostgap bpf replace --netns node-1 node-1 --wire eth0 --mtu 1500 --pods 10.244.1.0/24 --cluster 10.244.0.0/16,10.96.0.0/16 --gateway 169.254.1.1 --gateway-mac 02:05:00:00:00:00",
    ),
    (
        "bpf attach",
        "Examples:
  hostgap bpf attach --netns node-1 node-1 from_wire eth0
  hostgap bpf attach --netns node-1 node-1 from_pod hgp1
  hostgap bpf attach --netns node-1 node-1 guard hgp1",
    ),
    (
        "bpf endpoint",
        "Examples:
  hostgap bpf endpoint --netns node-1 node-1 hgp1 02:04:00:01:00:01 10.244.1.2 fd00:244:0:1::2
  hostgap bpf endpoint --netns node-1 --queued node-1 hgp2 02:04:00:01:00:02 10.244.1.3",
    ),
    (
        "bpf tunnel",
        "Examples:
  hostgap bpf tunnel --netns node-1 node-1 10.244.2.0/24 hgvx1 192.168.100.2
  hostgap bpf tunnel --netns node-1 node-1 fd00:244:0:2::/64 hgvx1 192.168.100.2",
    ),
    (
        "bpf uplink",
        "Examples:
  hostgap bpf uplink --netns node-1 node-1 flannel.1
  hostgap bpf attach --netns node-1 node-1 from_wire flannel.1      and take what arrives there",
    ),
    (
        "bpf splice",
        "Examples:
  hostgap bpf splice node-1
  hostgap bpf splice node-1 --attach /sys/fs/cgroup/hostgap/node-1",
    ),
    (
        "bpf member",
        "Examples:
  hostgap bpf member --netns pod-1 node-1 10.244.1.2 fd00:244:0:1::2",
    ),
    (
        "bpf guard",
        "Examples:
  hostgap bpf guard node-1",
    ),
    (
        "bpf replace-guard",
        "Examples:
  hostgap bpf replace-guard host-1
  hostgap bpf replace-guard --netns node-1 node-1    a node in a network namespace",
    ),
    (
        "bpf guarded",
        "Examples:
  hostgap bpf guarded --netns node-1 node-1 hgp1 pod-1 02:04:00:01:00:01 10.244.1.2 fd00:244:0:1::2",
    ),
    (
        "bpf services",
        "Examples:
  hostgap bpf services node-1
  hostgap bpf services node-1 --attach /sys/fs/cgroup/hostgap/node-1",
    ),
    (
        "bpf service",
        "Examples:
  hostgap bpf service node-1 10.96.0.10:53/udp 10.244.1.2:53 10.244.2.2:53
  hostgap bpf service node-1 '[fd00:96::a]:80/tcp' '[fd00:244:0:1::2]:8080' --affinity 10800",
    ),
    (
        "bpf unload",
        "Examples:
  hostgap bpf unload node-1",
    ),
    (
        "completions",
        "Examples:
  hostgap completions bash > /etc/bash_completion.d/hostgap
  hostgap completions zsh > /usr/local/share/zsh/site-functions/_hostgap",
    ),
];

/// A command with the examples that it lacks.
pub(crate) fn with(mut command: Command) -> Command {
    for (path, text) in EXAMPLES {
        command = at(command, &path.split(' ').collect::<Vec<_>>(), text);
    }
    command
}

fn at(command: Command, path: &[&str], text: &'static str) -> Command {
    match path.split_first() {
        None => command.after_help(text),
        Some((name, rest)) => command.mut_subcommand(name, |command| at(command, rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Every command with its path, but for those that are hidden.
    fn all(command: &Command, path: &str) -> Vec<(String, Command)> {
        let below = command.get_subcommands().filter(|command| !command.is_hide_set());
        below
            .flat_map(|command| {
                let path = format!("{path} {}", command.get_name());
                [vec![(path.clone(), command.clone())], all(command, &path)].concat()
            })
            .collect()
    }

    /// The commands of hostgap on a line: what a shell would start, without comments, pipes and redirections.
    fn commands(line: &str) -> Vec<Vec<String>> {
        let mut found = vec![];
        let mut line = line.trim();
        // Three spaces begin a comment, apart from the two of the indentation.
        line = line.split("   ").next().unwrap_or_default();
        for part in line.split("; ") {
            let part = part.split([' ']).take_while(|word| !["|", ">", "..."].contains(word));
            let mut words: Vec<String> = vec![];
            let mut open = false;
            for word in part {
                match (open, words.last_mut()) {
                    (true, Some(last)) => last.push_str(&format!(" {word}")),
                    _ => words.push(word.to_owned()),
                }
                open ^= word.matches('\'').count() % 2 == 1;
            }
            let words: Vec<String> = words.iter().map(|word| word.replace('\'', "")).collect();
            if words.first().is_some_and(|word| word == "hostgap") {
                found.push(words);
            }
        }
        found
    }

    #[test]
    fn every_command_has_examples_that_it_understands() {
        let cli = with(Cli::command());
        let mut read = 0;
        for (path, command) in all(&cli, "") {
            let help = [command.get_after_help(), command.get_after_long_help()];
            let text: String = help.into_iter().flatten().map(ToString::to_string).collect();
            assert!(text.starts_with("Examples:\n"), "hostgap{path} has no examples");
            let mut own = 0;
            for words in text.lines().filter(|line| line.starts_with("  hostgap")).flat_map(commands) {
                let parsed = with(Cli::command()).try_get_matches_from(&words);
                assert!(parsed.is_ok(), "hostgap{path}: {}: {}", words.join(" "), parsed.unwrap_err());
                own += usize::from(words.join(" ").starts_with(&format!("hostgap{path}")));
                read += 1;
            }
            assert!(own > 0, "hostgap{path} has examples of other commands alone");
        }
        assert!(read > 60, "{read} examples were read");
    }

    /// The second text of a command would take the place of the first.
    #[test]
    fn each_command_has_one_text() {
        let mut paths: Vec<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        paths.sort_unstable();
        let twice: Vec<_> = paths.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    /// A command may be as long as it has to be: it is pasted. What is read breaks in the middle else.
    #[test]
    fn what_is_beside_examples_fits_the_help() {
        for (path, command) in all(&with(Cli::command()), "") {
            let help = [command.get_after_help(), command.get_after_long_help()];
            let text: String = help.into_iter().flatten().map(ToString::to_string).collect();
            for line in text.lines() {
                let is_bare = line.starts_with("  hostgap") && !line.trim_start().contains("   ");
                assert!(is_bare || line.chars().count() <= 100, "hostgap{path}: {line}");
            }
        }
    }

    #[test]
    fn an_example_is_taken_apart_as_a_shell_does() {
        let taken = commands("  hostgap a --set b='4 5' > c.json; hostgap d e | jq '.x'     why; not this");
        assert_eq!(taken, [vec!["hostgap", "a", "--set", "b=4 5"], vec!["hostgap", "d", "e"]]);
    }
}
