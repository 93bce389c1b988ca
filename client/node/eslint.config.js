// SPDX-License-Identifier: Apache-2.0
// The strictest of typescript-eslint that needs types, for sources and tests.
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist/", "src/gen/", "node_modules/"] },
  {
    files: ["src/**/*.ts", "test/**/*.ts"],
    extends: [...tseslint.configs.strictTypeChecked, ...tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { project: "./tsconfig.test.json", tsconfigRootDir: import.meta.dirname } },
    rules: {
      // `as T` where an index is known to be there; `!` is refused by the strict set.
      "@typescript-eslint/non-nullable-type-assertion-style": "off",
      "max-len": ["error", { code: 120 }],
      "max-lines-per-function": ["error", { max: 60, skipComments: true }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/prefer-nullish-coalescing": ["error", { ignorePrimitives: { string: true } }],
    },
  },
  {
    files: ["**/*.js", "**/*.mjs"],
    extends: [...tseslint.configs.recommended],
    rules: {
      "max-len": ["error", { code: 120 }],
      "max-lines-per-function": ["error", { max: 60, skipComments: true }],
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
    },
  },
  {
    files: ["test/**/*.ts"],
    rules: { "max-lines-per-function": "off", "@typescript-eslint/no-floating-promises": "off" },
  },
);
