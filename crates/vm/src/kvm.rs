//! Whether KVM works on this machine, which only a boot shows, and a boot that hangs takes its limit to show it.

use std::fs;
use std::time::Duration;

use crate::Cache;

/// How long an answer is believed: a boot may have failed for another reason.
const BELIEVED: Duration = Duration::from_secs(60 * 60);

/// What a boot under KVM came to on this machine since it started, or what `boots` says now.
pub(crate) fn works(cache: &Cache, boots: impl FnOnce() -> bool) -> bool {
    let file = cache.path().join("kvm");
    // Without the number of this start no answer is kept.
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let is_young = || fs::metadata(&file)?.modified().map(|at| at.elapsed().is_ok_and(|age| age < BELIEVED));
    let known = fs::read_to_string(&file).ok().filter(|_| is_young().unwrap_or(false) && !start.is_empty());
    let answer = |works: bool| format!("{}: {works}\n", start.trim());
    for works in [true, false] {
        if known.as_ref().is_some_and(|known| *known == answer(works)) {
            return works;
        }
    }
    let works = boots();
    // The next one asks again.
    let _ = cache.write(&file, answer(works).as_bytes());
    works
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_is_tried_once_and_again_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let mut tries = 0;
        let mut ask = |answer: bool| {
            works(&cache, || {
                tries += 1;
                answer
            })
        };
        assert_eq!((ask(false), ask(true)), (false, false));
        fs::write(folder.path().join("kvm"), "11111111-2222-3333-4444-555555555555: false\n").unwrap();
        assert_eq!((ask(true), ask(false)), (true, true));
        assert_eq!(tries, 2);
    }
}
