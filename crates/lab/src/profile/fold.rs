//! Samples as folded stacks: the thread that ran, and the names of the kernel's functions, the outermost first.

use std::collections::{BTreeMap, HashMap};

use linux::perf::{Sample, Symbols};
use linux::procfs::Procfs;

/// Turns addresses and numbers of tasks into names.
pub(crate) struct Folder {
    symbols: Symbols,
    procfs: Procfs,
    own: u32,
    /// By process and thread.
    names: HashMap<(u32, u32), String>,
}

/// The idle task waits in one of these; which, depends on machine and driver. Found there it has nothing to do, found
/// anywhere else it is on its way into or out of idleness, or interrupted by work.
const IDLE: [&str; 15] = [
    "acpi_idle_do_entry",
    "acpi_safe_halt",
    "arch_cpu_idle",
    "cpu_do_idle",
    "cpu_idle_poll",
    "cpuidle_enter_state",
    "default_idle",
    "default_idle_call",
    "haltpoll",
    "intel_idle",
    "intel_idle_irq",
    "mwait_idle",
    "native_safe_halt",
    "poll_idle",
    "pv_native_safe_halt",
];

/// The parent of all kernel threads.
const KTHREADD: u32 = 2;
/// A server's worker is a child of a child of ours; no process is further away.
const GENERATIONS: usize = 4;

impl Folder {
    pub(crate) fn new(symbols: Symbols) -> Folder {
        Folder { symbols, procfs: Procfs::kernel(), own: std::process::id(), names: HashMap::new() }
    }

    /// Counts samples by their stacks, and gives how many found a CPU idle. To be called while the tasks still live.
    pub(crate) fn add(&mut self, samples: &[Sample], stacks: &mut BTreeMap<String, u64>) -> u64 {
        let mut idle = 0;
        for sample in samples {
            if self.is_idle(sample) {
                idle += 1;
                continue;
            }
            *stacks.entry(self.stack(sample)).or_insert(0) += 1;
        }
        idle
    }

    fn is_idle(&self, sample: &Sample) -> bool {
        let innermost = sample.kernel.first().and_then(|address| self.symbols.name(*address));
        sample.process == 0 && innermost.is_some_and(|name| IDLE.contains(&name))
    }

    fn stack(&mut self, sample: &Sample) -> String {
        let key = (sample.process, sample.thread);
        if !self.names.contains_key(&key) {
            let name = self.who(sample);
            self.names.insert(key, name);
        }
        let mut stack = self.names[&key].clone();
        if sample.user {
            stack.push_str(";[user]");
        }
        for (depth, address) in sample.kernel.iter().enumerate().rev() {
            // A caller's address is where it goes on, which is the next function's begin if the call is its last word.
            let address = if depth == 0 { *address } else { address.saturating_sub(1) };
            stack.push(';');
            stack.push_str(self.symbols.name(address).unwrap_or("[unknown]"));
        }
        stack
    }

    /// The kind of thread that ran, in the words of [`record::Profile::stacks`].
    fn who(&self, sample: &Sample) -> String {
        let task = |number| self.procfs.task(number).ok().flatten();
        if sample.process == 0 {
            return "swapper".to_owned();
        }
        if sample.process == self.own {
            return "client".to_owned();
        }
        let ancestors = std::iter::successors(Some(sample.process), |process| Some(task(*process)?.parent));
        if ancestors.take(GENERATIONS).any(|process| process == self.own) {
            return "server".to_owned();
        }
        let Some(task) = task(sample.thread) else { return "other:[ended]".to_owned() };
        let name = task.name.split('/').next().unwrap_or_default().replace([';', '\n'], "_");
        match (task.parent, name.as_str()) {
            (KTHREADD, "ksoftirqd") => name,
            _ => format!("other:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process, a thread, and the stack, the innermost first.
    fn sample(process: u32, user: bool, kernel: &[u64]) -> Sample {
        Sample { process, thread: process, user, kernel: kernel.to_vec() }
    }

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let text = "1000 T do_idle\n2000 T default_idle\n3000 T handle_softirqs\n4000 T ip_rcv\n5000 T do_syscall_64\n";
        let symbols = Symbols::parse(text);
        let tasks = [
            (10, "hostgap", 1),
            (11, "nginx", 10),
            (12, "nginx", 11),
            (20, "ksoftirqd/1", KTHREADD),
            (21, "kworker/1:2", KTHREADD),
            (30, "a;b", 1),
        ];
        for (number, name, parent) in tasks {
            let path = dir.path().join(number.to_string());
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("stat"), format!("{number} ({name}) S {parent} 0\n")).unwrap();
        }
        let procfs = Procfs::at(dir.path());
        (dir, Folder { symbols, procfs, own: 10, names: HashMap::new() })
    }

    #[test]
    fn stacks_begin_with_who_ran() {
        let (_dir, mut folder) = folder();
        let mut stacks = BTreeMap::new();
        let samples = [
            sample(10, true, &[]),
            sample(12, false, &[0x4010, 0x5001]),
            sample(12, false, &[0x4abc, 0x5fff]),
            sample(20, false, &[0x3000]),
            sample(21, false, &[0x3000]),
            sample(30, true, &[]),
            sample(31, false, &[0x5000]),
            // The return address is the first byte of the next function: the caller is the one before it.
            sample(11, false, &[0x4000, 0x4000]),
            sample(11, false, &[0x10]),
        ];
        assert_eq!(folder.add(&samples, &mut stacks), 0);
        let expected = [
            ("client;[user]", 1),
            ("ksoftirqd;handle_softirqs", 1),
            ("other:[ended];do_syscall_64", 1),
            ("other:a_b;[user]", 1),
            ("other:kworker;handle_softirqs", 1),
            ("server;[unknown]", 1),
            ("server;do_syscall_64;ip_rcv", 2),
            ("server;handle_softirqs;ip_rcv", 1),
        ];
        assert_eq!(stacks.into_iter().collect::<Vec<_>>(), expected.map(|(stack, n)| (stack.to_owned(), n)));
    }

    #[test]
    fn the_idle_task_is_idle_only_where_it_waits() {
        let (_dir, mut folder) = folder();
        let mut stacks = BTreeMap::new();
        let samples = [
            sample(0, false, &[0x2004, 0x1010]),
            sample(0, false, &[0x1010]),
            sample(0, false, &[0x4001, 0x3010, 0x2004, 0x1010]),
            // Another task in a function of that name is not idle.
            sample(12, false, &[0x2004]),
        ];
        assert_eq!(folder.add(&samples, &mut stacks), 1);
        let stacks: Vec<&str> = stacks.keys().map(String::as_str).collect();
        let expected =
            ["server;default_idle", "swapper;do_idle", "swapper;do_idle;default_idle;handle_softirqs;ip_rcv"];
        assert_eq!(stacks, expected);
    }
}
