// Fields that a person fills in, and what is wrong in them.

/** Mark a field as wrong, with a sentence that says why; null: it is right. */
export function setProblem(field, problem) {
  field.setCustomValidity(problem ?? "");
  for (const [name, value] of [["aria-invalid", "true"], ["title", problem]]) {
    if (problem === null) field.removeAttribute(name);
    else field.setAttribute(name, value);
  }
}

/** Return the number in a field; null, and mark the field, if it has none. */
export function readNumber(field, name) {
  const value = Number(field.value);
  const isRight = field.value.trim() !== "" && Number.isFinite(value);
  setProblem(field, isRight ? null : `${name} must be a number.`);
  return isRight ? value : null;
}

/** Return the integer in a field with `min` and perhaps `max`; null, and mark the field, if it has none. */
export function readInteger(field, name) {
  const value = Number(field.value);
  const isRight = field.value.trim() !== "" && Number.isInteger(value) && value >= Number(field.min) && (field.max === "" || value <= Number(field.max));
  setProblem(field, isRight ? null : `${name} must be an integer, ${field.max === "" ? `at least ${field.min}` : `${field.min} to ${field.max}`}.`);
  return isRight ? value : null;
}
