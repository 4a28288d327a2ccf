//! What the intervals of this crate promise, checked by seeded simulation.

#[cfg(test)]
mod coverage;
#[cfg(test)]
mod looks;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod search;
#[cfg(test)]
mod typical;
